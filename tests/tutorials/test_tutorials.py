"""Every tutorial runs from top to bottom, as a notebook, without an error; and so do the tools that do it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from tools.docs.execute import PAGES, notebook
from tools.docs.fences import cells
from tools.docs.outputs import kept_outputs, rendered, with_outputs

from .conftest import have

NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
LOADED = re.compile(r"load_adult|load_uci\(\s*[\"'](\w+)|splits\(\s*[\"'](\w+)")
PAGE = """# A page

```bash
echo hello > said.txt
dpsep --version
```

```python
# alt: a line that rises
import matplotlib.pyplot as plt

plt.plot([1, 2]);
```

```python
# not run: it would not end
while True: pass
```

````markdown
```python
nothing
```
````

```python
print(open("said.txt").read() + "<b>")
```
"""


def needed(page: str) -> set[str]:
    """Return the data sets that a page loads."""
    found = [match for cell in cells(page) for match in LOADED.finditer(cell.code)]
    return {match[1] or match[2] or "adult" for match in found}


def execute(root: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the tool in a process of its own, as `make notebooks` does."""
    command = [sys.executable, "tools/docs/execute.py", *map(str, arguments)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_runs_from_top_to_bottom(name: str, root: Path, tmp_path: Path) -> None:
    page = (PAGES / f"{name}.md").read_text("utf-8")
    missing = sorted(one for one in needed(page) if not have(one))
    if missing:
        pytest.skip(f"it needs {', '.join(missing)}: set DPSEP_DATA to a folder that holds it")
    done = execute(root, name, "--force", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    code = code_cells(tmp_path / f"{name}.ipynb")
    assert len(code) == len(cells(page)) > 3
    assert [one for cell in code for one in cell["outputs"] if one["output_type"] == "error"] == []
    shown = json.dumps(code)
    assert str(root) not in shown, "an output names a folder of this machine"
    assert "image/png" in shown, "a tutorial shows at least one picture"
    kept = kept_outputs(name, page, tmp_path)
    assert kept is not None
    assert with_outputs(page, kept).count('class="cell-output"') > 3


def test_every_tutorial_is_in_the_contents(root: Path) -> None:
    contents = (root / "mkdocs.yml").read_text("utf-8")
    assert len(NAMES) >= 8
    assert [name for name in NAMES if f"tutorials/{name}.md" not in contents] == []


def test_a_page_becomes_a_notebook_whose_cells_are_its_blocks() -> None:
    made = notebook(PAGE)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    assert [source.splitlines()[-1] for source in code] == [
        "dpsep --version",
        "plt.plot([1, 2]);",
        'print(open("said.txt").read() + "<b>")',
    ]
    nbformat.validate(made)


def test_outputs_stand_under_their_cells(root: Path, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    first, second = (execute(root, "--pages", tmp_path, "--out", tmp_path) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "up to date" not in first.stdout
    assert "up to date" in second.stdout
    kept = kept_outputs("page", PAGE, tmp_path)
    assert kept is not None
    shown = with_outputs(PAGE, kept)
    assert re.search(r"--version\n```\n\n<div class=\"cell-output\"><pre><code>dpsep [\d.]+</code>", shown)
    assert '<img alt="a line that rises" src="data:image/png;base64,' in shown
    assert "<pre><code>hello\n&lt;b&gt;</code></pre>" in shown
    assert "# alt:" not in shown
    assert shown.count("cell-output") == 3


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```bash\nfalse\necho on\n```\n", "CalledProcessError"),
        ("```python\nimport time; time.sleep(600)\n```\n", "not done within 20 s"),
        ("```python\nimport matplotlib.pyplot as plt; plt.plot([1]);\n```\n", "# alt"),
    ],
)
def test_a_page_that_does_not_run_is_refused(code: str, told: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(code, encoding="utf-8")
    done = execute(root, "--pages", tmp_path, "--out", tmp_path / "made", "--limit", 20)
    assert done.returncode == 1
    assert told in done.stderr
    assert not (tmp_path / "made").exists()


def test_long_texts_are_cut_and_tables_are_shown_as_tables() -> None:
    text = "\n".join(map(str, range(500)))
    assert "(440 more lines)" in rendered([{"output_type": "stream", "name": "stdout", "text": text}], [])
    table = "<div><style>x{}</style><table border='1' class='dataframe'><tr><td>`1`</td></tr></table></div>"
    made = rendered([{"output_type": "execute_result", "data": {"text/html": table, "text/plain": "1"}}], [])
    assert made == '<div class="cell-output"><div><table><tr><td>&#96;1&#96;</td></tr></table></div></div>'


def test_outputs_of_another_version_of_a_page_are_not_shown(tmp_path: Path) -> None:
    made = notebook(PAGE)
    made.metadata["dpsep"] = {"page": "of another"}
    nbformat.write(made, tmp_path / "page.ipynb")
    assert kept_outputs("page", PAGE, tmp_path) is None
