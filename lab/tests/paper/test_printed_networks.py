import re
from pathlib import Path

import pytest

from dpsep_lab.paper import printed_networks as printed

PAPER = Path(__file__).resolve().parents[3].parent / "shared" / "paper"
with_paper = pytest.mark.skipif(not PAPER.is_dir(), reason=f"the paper's text is not in {PAPER}")


def table(label: str) -> list[list[str]]:
    """The cells of one of the paper's tables, without LaTeX's trimmings."""
    (path,) = PAPER.glob("*.txt")
    text = path.read_text()
    body = text[text.index(rf"\label{{tab:{label}}}") :]
    body = body[: body.index(r"\bottomrule")]
    found = []
    for line in body.splitlines():
        line = re.sub(r"\\textbf|[${}]|\\\\", "", line.replace(r"\pm", " "))
        cells = [cell.strip() for cell in line.split("&")]
        if len(cells) > 1 and re.match(r"(Naval|Kin8nm|Power|Wine|Protein|Year|\d+)$", cells[0]):
            found.append(cells)
    return found


def figure(cell: str) -> printed.Figure:
    mean, sd = cell.split()
    return printed.Figure(float(mean), None if sd == "NA" else float(sd))


@with_paper
@pytest.mark.parametrize(
    ("label", "numbers"),
    [
        ("test_rmse", printed.TABLE_3),
        ("test_ll", printed.TABLE_4),
        ("test_rmse_rebuttal", printed.TABLE_5),
    ],
)
def test_every_average_and_deviation_by_data_set_is_the_papers(label, numbers):
    rows = {cells[0].lower(): tuple(map(figure, cells[1:])) for cells in table(label)}
    assert rows == numbers


@with_paper
@pytest.mark.parametrize(
    ("label", "numbers"),
    [("test_rmse_clip_dpsep", printed.TABLE_8), ("test_ll_clip_dpsep", printed.TABLE_9)],
)
def test_every_average_and_deviation_by_clip_is_the_papers(label, numbers):
    rows = table(label)
    assert tuple(float(cells[0]) for cells in rows) == printed.CLIPS
    for place, name in enumerate(printed.DATASETS, 1):
        assert tuple(figure(cells[place]) for cells in rows) == numbers[name], name


@with_paper
def test_the_sizes_of_the_data_sets_are_the_papers():
    sizes = {cells[0].lower(): (int(cells[1]), int(cells[2])) for cells in table("data_description")}
    assert sizes == printed.TABLE_2


@with_paper
@pytest.mark.parametrize(
    ("label", "numbers"),
    [("vi_settings", printed.VI_SETTINGS), ("dpvi_settings", printed.DPVI_SETTINGS)],
)
def test_every_setting_is_the_papers(label, numbers):
    def value(cell: str) -> float:
        parts = re.fullmatch(r"(\d+) \\cdot 10\^(-\d+)", cell)
        return float(f"{parts[1]}e{parts[2]}") if parts else float(cell)

    rows = {cells[0].lower(): [value(cell) for cell in cells[1:]] for cells in table(label)}
    given = {name: [float(x) for x in row if x is not None] for name, row in numbers.items()}
    assert rows == given


def test_every_table_has_the_six_sets_in_the_papers_order():
    tables = (printed.TABLE_2, printed.TABLE_3, printed.TABLE_4, printed.TABLE_5, printed.TABLE_8)
    for numbers in (*tables, printed.TABLE_9, printed.VI_SETTINGS, printed.DPVI_SETTINGS):
        assert tuple(numbers) == printed.DATASETS


def test_what_the_docstring_says_of_the_printed_numbers_is_so():
    dpsep, dpvi = printed.COLUMNS.index("DP-SEP"), printed.COLUMNS.index("DP-VI")
    assert printed.TABLE_8["year"][0] == printed.TABLE_3["year"][dpvi] != printed.TABLE_3["year"][dpsep]
    assert printed.TABLE_9["year"][0] == printed.TABLE_4["year"][dpvi] != printed.TABLE_4["year"][dpsep]
    assert printed.TABLE_3["wine"][dpsep].mean == 0.627
    assert printed.TABLE_8["wine"][0].mean == 0.600
