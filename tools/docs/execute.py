"""Tutorials as notebooks: read docs/tutorials/NAME.md with jupytext, run it top to bottom, keep the outputs.

    python tools/docs/execute.py [NAME ...] [--force] [--out FOLDER] [--pages FOLDER] [--limit SECONDS]

A page's cells are its ```python and ```bash blocks. All cells of a page work in one scratch folder and one
process; bash cells stop at the first command that fails, find the programs of this environment first, and
write `COMMAND || true` where a command is meant to fail. A block that opens with `# not run: REASON` is text.
A cell that shows a picture says in a line `# alt: ...` what is to be seen (one line a picture).
A page must end within 300 seconds and without an error. It makes the tables that it reads or takes them from
installed packages: no network and no data folder is needed. What was made from the same page, tools and
package is not made again. The kernel speaks over sockets in the file system: no port is opened.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.docs.fences import cells, reason_not_run, without_front_matter  # noqa: E402

PAGES = ROOT / "docs" / "tutorials"
NOTEBOOKS = ROOT / "build" / "notebooks"
LIMIT = 300.0
"""Seconds that a page may take."""
BASH = "%%bash -e -o pipefail"
HEADER = "---\njupyter:\n  kernelspec: {name: python3, display_name: Python 3, language: python}\n---\n\n"
MAGIC = re.compile(r"%%([\w +#-]+)\n")
ALT = re.compile(r"^# alt: *(\S.*)$", re.MULTILINE)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CELL_FILE = re.compile(r"/\S*?/ipykernel_\d+/\d+\.py:")


class TutorialError(Exception):
    """A page that does not run; the message says where and why."""


class _Here(KernelSpecManager):
    """The interpreter that runs this program, and no other kernel."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def notebook(page: str) -> Any:
    """Return a page as a notebook without outputs."""
    made: Any = jupytext.reads(HEADER + without_front_matter(page), fmt="md")
    for cell in made.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        magic = MAGIC.match(cell.source)
        if magic and magic[1] == "bash" and reason_not_run(cell.source[magic.end() :]) is None:
            cell.source = f"{BASH}\n{cell.source[magic.end() :]}"
        elif magic or reason_not_run(cell.source) is not None:
            language = magic[1] if magic else "python"
            text = f"````{language}\n{cell.source[magic.end() if magic else 0 :]}\n````"
            cell.update(nbformat.v4.new_markdown_cell(text, id=cell.id))
            del cell["outputs"], cell["execution_count"]
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"
    made.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    found = [cell.source.removeprefix(f"{BASH}\n") for cell in made.cells if cell.cell_type == "code"]
    if found != [cell.code.rstrip("\n") for cell in cells(page)]:
        raise TutorialError("jupytext and tools/docs/fences.py do not read the same cells: mend the fences")
    return made


def fingerprint(page: str) -> str:
    """Return a hash of all that outputs depend on: the page, these tools and the packages."""
    digest = hashlib.sha256(page.encode())
    tools = [Path(__file__), Path(__file__).with_name("fences.py")]
    sources = [*tools, *(ROOT / "src" / "dpsep").rglob("*"), *(ROOT / "lab" / "src").rglob("*")]
    for path in sorted(one for one in sources if one.is_file() and one.suffix != ".pyc"):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def page_hash(page: str) -> str:
    """Return a hash of the page alone, by which the site sees whether outputs belong to it."""
    return hashlib.sha256(page.encode()).hexdigest()


def run(page: str, name: str, limit: float = LIMIT) -> Any:
    """Return a page as a notebook with outputs, or raise `TutorialError`."""
    made = notebook(page)
    end = time.monotonic() + limit
    with tempfile.TemporaryDirectory(prefix="dpsep-") as kept:
        scratch, own = Path(kept) / "work", Path(kept) / "own"
        scratch.mkdir()
        own.mkdir()
        # A socket's path may have about a hundred characters: the folder's name is short.
        manager = AsyncKernelManager(
            transport="ipc",
            ip=str(own / "ipc"),
            connection_file=str(own / "kernel.json"),
            kernel_spec_manager=_Here(),
        )
        client = NotebookClient(
            made,
            km=manager,
            timeout_func=lambda cell: max(1, int(end - time.monotonic())),
            record_timing=False,
            resources={"metadata": {"path": str(scratch)}},
        )
        try:
            client.execute(env=environment(own))
        except CellExecutionError as error:
            raise TutorialError(f"{name}: {plain(str(error), scratch)}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            said = plain(str(error), scratch)
            raise TutorialError(f"{name}: not done within {limit:.0f} s, or it died. {said}") from None
        finally:
            if manager.has_kernel:
                run_sync(manager.shutdown_kernel)(now=True)
        _clean(made, scratch)
    _check_pictures(made, name)
    return made


def environment(own: Path) -> dict[str, str]:
    """Return the environment of a page's process: nothing of the user's settings but caches."""
    found = dict(os.environ)
    found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), found.get("PATH", os.defpath)])
    found |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "IPYTHONDIR": str(own / "ipython")}
    found |= {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    found["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of a progress bar that is not shown
    found.setdefault("JAX_PLATFORMS", "cpu")
    return found


def plain(text: str, scratch: Path) -> str:
    """Return text without colours, overwritten progress and paths of this machine."""
    text = ESCAPES.sub("", text).replace("\r\n", "\n")
    text = "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))
    text = CELL_FILE.sub("cell:", text)
    for folder in (scratch, ROOT):
        text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    return text


def _clean(made: Any, scratch: Path) -> None:
    """Clean the outputs in place, and join what one stream printed in pieces."""
    for cell in made.cells:
        if cell.cell_type != "code":
            continue
        joined: list[Any] = []
        for output in cell.outputs:
            if joined and output.output_type == "stream" and output.name == joined[-1].get("name"):
                joined[-1].text += output.text
            else:
                joined.append(output)
        cell.outputs = joined
        for output in joined:
            if output.output_type == "stream":
                output.text = plain(output.text, scratch)
            for kind, value in output.get("data", {}).items():
                if isinstance(value, str) and kind.startswith("text/"):
                    output.data[kind] = plain(value, scratch)


def _check_pictures(made: Any, name: str) -> None:
    for cell in made.cells:
        if cell.cell_type == "code":
            pictures = sum("image/png" in output.get("data", {}) for output in cell.outputs)
            described = len(ALT.findall(cell.source))
            if pictures != described:
                raise TutorialError(
                    f"{name}: a cell shows {pictures} pictures and has {described} lines '# alt: ...'; "
                    f"write one line for each picture, saying what is to be seen:\n{cell.source}"
                )


def write(source: Path, folder: Path, *, force: bool = False, limit: float = LIMIT) -> tuple[Path, bool]:
    """Write a page's notebook unless it is there already; return its path and whether it was run."""
    page, name = source.read_text(encoding="utf-8"), source.stem
    target, made_from = folder / f"{name}.ipynb", fingerprint(page)
    if not force and target.is_file():
        kept = json.loads(target.read_text(encoding="utf-8"))["metadata"].get("dpsep", {})
        if kept.get("made_from") == made_from:
            return target, False
    made = run(page, name, limit)
    made.metadata["dpsep"] = {"made_from": made_from, "page": page_hash(page)}
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    nbformat.write(made, part)
    part.replace(target)
    return target, True


def main() -> int:
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(description="Run tutorials and write them as notebooks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which pages; all if left out")
    parser.add_argument("--force", action="store_true", help="run again what is up to date")
    parser.add_argument("--out", type=Path, default=NOTEBOOKS, help="folder for the notebooks")
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of the pages")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a page may take")
    asked = parser.parse_args()
    known = {path.stem: path for path in sorted(asked.pages.glob("*.md"))}
    names = [Path(name).stem for name in asked.names] or list(known)
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"no page is called {', '.join(unknown)}; there are {', '.join(known)}")
    failed = 0
    for name in names:
        started = time.monotonic()
        try:
            path, was_run = write(known[name], asked.out, force=asked.force, limit=asked.limit)
        except TutorialError as error:
            failed += 1
            print(f"FAILED {error}", file=sys.stderr, flush=True)
            continue
        told = f"{time.monotonic() - started:.0f} s" if was_run else "up to date"
        print(f"{name}: {told}, {os.path.relpath(path)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
