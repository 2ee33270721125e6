"""What a tutorial's cells printed, drawn and returned, put under the cells of its page.

The outputs come from the notebook that `execute.py` keeps, and only if that was made from this very page:
otherwise the page is shown without outputs.
"""

import html
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from tools.docs.execute import ALT, NOTEBOOKS, page_hash
from tools.docs.fences import cells

__all__ = ["kept_outputs", "rendered", "with_outputs"]

LINES, WIDTH, MOST = 60, 110, 5000
"""Most lines of a text that are shown, width at which a line is broken, and most characters of one line."""
ENDS = 12
"""Lines shown of a longer text's end."""
STYLE = re.compile(r"<(style|script)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
TABLE = re.compile(r"(<table\b)[^>]*>")


def kept_outputs(name: str, page: str, folder: Path = NOTEBOOKS) -> list[list[Any]] | None:
    """Return the outputs of each cell of a page, or None where they were not made from this page."""
    path = folder / f"{name}.ipynb"
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["metadata"].get("dpsep", {}).get("page") != page_hash(page):
        return None
    return [cell["outputs"] for cell in kept["cells"] if cell["cell_type"] == "code"]


def with_outputs(markdown: str, outputs: list[list[Any]]) -> str:
    """Return a page with outputs under its cells; lines that describe pictures become their alt text."""
    lines, found = markdown.splitlines(), cells(markdown)
    if len(found) != len(outputs):
        raise ValueError(f"the page has {len(found)} cells, and there are outputs of {len(outputs)}")
    for cell, shown in reversed(list(zip(found, outputs, strict=True))):
        described = ALT.findall(cell.code)
        code = [line for line in lines[cell.first : cell.last + 1] if not ALT.match(line)]
        block = rendered(shown, described)
        lines[cell.first : cell.last + 1] = [*code, "", block, ""] if block else code
    return "\n".join(lines) + "\n"


def rendered(outputs: list[Any], described: list[str]) -> str:
    """Return a cell's outputs as one piece of HTML, empty where there are none."""
    parts, alts = [], iter(described)
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            source = "".join(data["image/png"]).replace("\n", "")
            alt = html.escape(next(alts), quote=True)
            parts.append(f'<img alt="{alt}" src="data:image/png;base64,{source}">')
        elif "<table" in "".join(data.get("text/html", "")):
            table = STYLE.sub("", "".join(data["text/html"]))
            parts.append(TABLE.sub(r"\1>", table).replace("`", "&#96;"))
        elif text := "".join(output.get("text", data.get("text/plain", ""))).strip("\n"):
            # A backtick could open a fence, which is read before HTML is.
            shown = html.escape(_short(text), quote=False).replace("`", "&#96;")
            parts.append(f"<pre><code>{shown}</code></pre>")
    return '<div class="cell-output">' + "".join(parts) + "</div>" if parts else ""


def _short(text: str) -> str:
    """Return a text whose long lines are broken between words and whose middle is left out if it is long."""
    lines = [part for line in text.split("\n") for part in (_broken(line) if len(line) > WIDTH else [line])]
    if len(lines) > LINES:
        left = len(lines) - LINES
        lines = [*lines[: LINES - ENDS], f"... ({left} more lines)", *lines[-ENDS:]]
    return "\n".join(lines)


def _broken(line: str) -> list[str]:
    return textwrap.wrap(line[:MOST], WIDTH, break_on_hyphens=False) or [""]
