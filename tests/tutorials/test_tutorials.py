"""Every tutorial runs from top to bottom without an error, on tables that it makes or that are installed.

The tutorials' cells are run here in this process, in order; that a page becomes a notebook with its outputs
is tested with a small page. `make notebooks` runs all of them as notebooks.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from tools.docs.execute import ALT, PAGES, ROOT, notebook
from tools.docs.outputs import kept_outputs, rendered, with_outputs

from dpsep_lab.data import DataError

from .cells import run

NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
LONG = ("auditing", "federated", "mixed-model", "mixture", "network", "own-likelihood")
"""Those that `make deep` alone runs."""
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


def execute(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the tool in a process of its own, as `make notebooks` does."""
    command = [sys.executable, "tools/docs/execute.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in LONG else name for name in NAMES]
)
def test_a_tutorial_runs_from_top_to_bottom_without_data_or_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run(PAGES / f"{name}.md", tmp_path, monkeypatch)
    assert len(shown) > 3
    assert sum(bool(one.text or one.pictures) for one in shown) > 3
    assert sum(one.pictures for one in shown) > 0, "a tutorial shows at least one picture"
    undescribed = [one.cell.code for one in shown if one.pictures != len(ALT.findall(one.cell.code))]
    assert undescribed == []
    text = "\n".join(one.text for one in shown)
    folders = [folder for folder in (ROOT, tmp_path, Path.home(), Path(sys.prefix)) if str(folder) in text]
    assert folders == [], "an output names a folder of this machine"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("```python\n1 / 0\n```\n", ZeroDivisionError),
        ("```bash\nfalse\necho on\n```\n", AssertionError),
        ("```python\nfrom dpsep_lab.data import load_adult\n\nload_adult()\n```\n", DataError),
        (
            "```bash\npython -c 'from dpsep_lab.data import load_uci; load_uci(\"power\")'\n```\n",
            AssertionError,
        ),
    ],
)
def test_a_cell_that_fails_or_reads_a_data_set_that_is_not_installed_is_seen(
    code: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text(code, encoding="utf-8")
    with pytest.raises(error):
        run(tmp_path / "page.md", tmp_path, monkeypatch)


def test_every_tutorial_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text("utf-8")
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


def test_outputs_stand_under_their_cells(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    first, second = (execute("--pages", tmp_path, "--out", tmp_path) for _ in range(2))
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


def test_a_page_that_does_not_run_is_refused(tmp_path: Path) -> None:
    wrong = {
        "error": ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        "command": ("```bash\nfalse\necho on\n```\n", "CalledProcessError"),
        "picture": ("```python\nimport matplotlib.pyplot as plt; plt.plot([1]);\n```\n", "# alt"),
    }
    for name, (code, _) in wrong.items():
        (tmp_path / f"{name}.md").write_text(code, encoding="utf-8")
    done = execute("--pages", tmp_path, "--out", tmp_path / "made")
    assert done.returncode == 1
    for name, (_, told) in wrong.items():
        assert re.search(rf"^FAILED {name}: [^\0]*?{told}", done.stderr, re.MULTILINE), done.stderr
    assert not (tmp_path / "made").exists()


def test_a_page_that_does_not_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```python\nimport time; time.sleep(600)\n```\n", encoding="utf-8")
    done = execute("--pages", tmp_path, "--out", tmp_path / "made", "--limit", 2)
    assert done.returncode == 1
    assert "not done within 2 s" in done.stderr
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
