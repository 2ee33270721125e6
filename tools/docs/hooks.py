"""What MkDocs does not do by itself: outputs under tutorials' cells, formulas, commands, links to files."""

import logging
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.docs import commands, mathematics, outputs, repository

log = logging.getLogger("mkdocs.hooks.dpsep")
COMMANDS = "<!-- commands -->"
SEARCH = 'data-md-component="search" role="dialog" aria-label="Search"'
TUTORIALS = "tutorials/"
SETUP = re.compile(r"^<!-- setup\n.*?\n-->\n", re.DOTALL | re.MULTILINE)
"""What tests run before a page's code; readers do not see it."""
NAMED = re.compile(r'(?<!">)<code>(dpsep(?:\.\w+)+)</code>')
"""A public name in the text, which is to lead to the reference if it is there."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file of the repository that a page links to."""
    pages = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    wanted = [repository.ROOT / name for name in repository.ALWAYS]
    shown: set[Path] = set()
    while pages or wanted:
        for uri, text in pages:
            wanted += repository.linked_files(text, uri)
        pages = []
        for path in dict.fromkeys(wanted):
            if path not in shown:
                shown.add(path)
                uri, text = repository.page_of(path)
                files.append(File.generated(config, uri, content=text))
                pages.append((uri, text))
        wanted = []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put outputs under cells, write the commands' reference, and turn links to files of the repository."""
    uri = page.file.src_uri
    if uri.startswith(TUTORIALS):
        kept = outputs.kept_outputs(Path(uri).stem, page.file.content_string)
        if kept is None:
            log.info(f"{uri} is shown without outputs: run tools/docs/execute.py")
        else:
            markdown = outputs.with_outputs(markdown, kept)
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, commands.reference())
    return repository.turned(SETUP.sub("", markdown), uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the formulas, and let names lead to the reference."""
    html = NAMED.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)
    try:
        return mathematics.drawn(html)
    except ValueError as error:
        log.warning(f"{page.file.src_uri}: {error}")
        return html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give the dialog of the search a name, which the theme leaves out and screen readers ask for."""
    return output.replace('data-md-component="search" role="dialog"', SEARCH)
