"""Figure 1, small: one pass and one epsilon."""

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpsep.report.clusters import Cell
from dpsep_lab.paper import figure1
from dpsep_lab.paper.clusters import make, match

PNG = b"\x89PNG\r\n\x1a\n"


class Drawn(NamedTuple):
    path: Path
    cells: list[list[Cell]]
    rows: list[dict[str, Any]]
    calls: list[tuple[int, int]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    path = tmp_path_factory.mktemp("figure") / "figure1.png"
    path.write_bytes(b"an older picture")
    cells: list[list[Cell]] = []
    calls: list[tuple[int, int]] = []
    draw = figure1.panel

    def spy(path: Path, given: Any, *more: Any, **others: Any) -> None:
        cells.extend(given)
        draw(path, given, *more, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure1, "EPSILONS", (50.0,))
        patch.setattr(figure1, "panel", spy)
        rows = figure1.draw(path, passes=1, on_step=lambda done, total: calls.append((done, total)))
    return Drawn(path, cells, rows, calls)


def _titles(drawn: Drawn) -> dict[str, Cell]:
    return {cell.title: cell for line in drawn.cells for cell in line}


@pytest.mark.deep
def test_the_figure_is_a_whole_png_in_the_place_of_the_old_one(drawn: Drawn) -> None:
    content = drawn.path.read_bytes()
    assert content.startswith(PNG)
    assert content[-8:-4] == b"IEND"
    assert [item.name for item in drawn.path.parent.iterdir()] == ["figure1.png"]


def test_a_figure_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "figure1.png").write_bytes(b"an older picture")
    monkeypatch.setattr(figure1, "_lines", lambda passes: [[("truth", None)]])
    monkeypatch.setattr("dpsep.privacy.checkpoint.os.write", full)
    with pytest.raises(OSError, match=r"room|space"):
        figure1.draw(tmp_path / "figure1.png")
    assert (tmp_path / "figure1.png").read_bytes() == b"an older picture"
    assert [item.name for item in tmp_path.iterdir()] == ["figure1.png"]


@pytest.mark.deep
def test_every_panel_has_a_row_and_is_reported(drawn: Drawn) -> None:
    assert [row["panel"] for row in drawn.rows] == [cell.title for line in drawn.cells for cell in line]
    assert [len(line) for line in drawn.cells] == [3, 3, 1, 1, 1]
    assert drawn.calls == [(done, 9) for done in range(1, 10)]
    assert drawn.rows[0]["average F-norm"] == 0.0
    ours = [row for row in drawn.rows if row["panel"] in ("EP", "SEP") or "ours" in row["panel"]]
    assert len(ours) == 4
    assert all(row["average F-norm"] < 0.01 for row in ours)


@pytest.mark.deep
def test_components_are_in_the_order_of_the_truth_in_every_panel(drawn: Drawn) -> None:
    truth = drawn.cells[0][0]
    np.testing.assert_array_equal(truth.labels, make(figure1.SEED).labels)
    for line in drawn.cells:
        for cell in line:
            assert match(truth.means, cell.means).tolist() == [0, 1, 2, 3]  # pyright: ignore[reportArgumentType]


def test_labels_mean_the_same_in_the_panels_that_found_the_clusters(drawn: Drawn) -> None:
    cells = _titles(drawn)
    truth = cells["truth (labels known)"]
    for title in ("EP", "SEP", r"DP-SEP (ours), $\epsilon$ = 50", r"DP-EM (ours), $\epsilon$ = 50"):
        assert np.mean(cells[title].labels == truth.labels) > 0.95


def test_a_record_has_the_label_of_its_most_probable_component(drawn: Drawn) -> None:
    for title in ("EP", "SEP clipped as written, C = 20"):
        cell = _titles(drawn)[title]
        assert cell.means is not None
        assert cell.covariances is not None
        densities = [
            multivariate_normal(mean, covariance + 0.25 * np.eye(4)).logpdf(cell.x)
            for mean, covariance in zip(cell.means, cell.covariances, strict=True)
        ]
        np.testing.assert_array_equal(cell.labels, np.argmax(densities, axis=0))
