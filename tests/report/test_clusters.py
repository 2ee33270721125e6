import struct
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import chi2

from dpsep.report.clusters import COLOURS, Cell, panel, ring

SQUARE = np.array([[-4.0, -4.0, 0.0], [4.0, -4.0, 1.0], [4.0, 4.0, 2.0], [-4.0, 4.0, 3.0]])


def cell(title="SEP", labels=(0, 1, 2, 3), means=None, covariances=None, x=SQUARE):
    return Cell(title, x, np.array(labels), means, covariances)


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, as it was saved."""
    saved = []
    save = Figure.savefig

    def keep(self, *args, **kwargs):
        saved.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return saved


def note_of(axis):
    return [text.get_text() for text in axis.texts]


def test_a_ring_lies_where_the_squared_distance_is_the_chi_squares_98_percent_point():
    mean, root = np.array([1.0, -2.0]), np.array([[2.0, 0.0], [1.5, 0.3]])
    covariance = root @ root.T
    away = ring(mean, covariance) - mean
    squared = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    np.testing.assert_allclose(squared, chi2.ppf(0.98, df=2), rtol=1e-9)
    angles = np.unwrap(np.arctan2(*np.linalg.solve(root, away.T)))
    assert abs(angles[-1] - angles[0]) == pytest.approx(2 * np.pi)


def test_a_ring_of_what_is_no_covariance_is_refused():
    with pytest.raises(ValueError, match="positive semidefinite"):
        ring(np.zeros(2), np.diag([1.0, -1.0]))


def test_the_picture_is_a_png_1600_pixels_wide_and_nothing_else_is_left_in_the_folder(tmp_path):
    means, covariances = np.zeros((2, 3)), np.stack([np.eye(3)] * 2)
    full = cell(means=means, covariances=covariances)
    panel(tmp_path / "figure.png", [[full, full, full], [full]], title="Clusters", note="made data")
    content = (tmp_path / "figure.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (1600,)
    assert [file.name for file in tmp_path.iterdir()] == ["figure.png"]


def test_a_picture_that_fails_leaves_the_old_one_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")

    def fail(*_, **__):
        raise RuntimeError("no more ink")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError, match="ink"):
        panel(path, [[cell()]])
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_label_has_the_same_colour_in_every_panel(tmp_path, figures):
    panel(tmp_path / "f.png", [[cell(labels=(0, 1, 2, 3)), cell(labels=(3, 3, 1, 0))]])
    for axis, labels in zip(figures[0].axes, [(0, 1, 2, 3), (3, 3, 1, 0)], strict=True):
        colours = [to_hex(colour) for colour in axis.collections[0].get_facecolors()]
        assert colours == [COLOURS[label].lower() for label in labels]


def test_all_panels_have_the_same_limits_which_hold_every_record(tmp_path, figures):
    panel(tmp_path / "f.png", [[cell()], [cell(x=SQUARE / 4 + 6, means=np.full((1, 3), 1e3))]])
    first, second = figures[0].axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    low, high = first.get_ylim()
    assert low < -4
    assert 7 < high < 10


def test_the_chosen_dimensions_are_drawn(tmp_path, figures):
    covariance = np.diag([9.0, 0.04, 0.25])[None]
    panel(tmp_path / "f.png", [[cell(means=np.array([[7.0, 1.0, 2.0]]), covariances=covariance)]], (1, 2))
    (axis,) = figures[0].axes
    np.testing.assert_array_equal(axis.collections[0].get_offsets(), SQUARE[:, 1:])
    cross, ellipse = axis.lines
    np.testing.assert_array_equal(cross.get_xydata(), [[1.0, 2.0]])
    reach = np.ptp(ellipse.get_xydata(), axis=0) / 2
    np.testing.assert_allclose(reach, np.array([0.2, 0.5]) * chi2.ppf(0.98, df=2) ** 0.5, rtol=1e-3)


def test_means_outside_the_picture_are_counted_in_words(tmp_path, figures):
    means = np.array([[0.0, 0.0, 0.0], [50.0, 0.0, 0.0], [0.0, -50.0, 0.0]])
    row = [cell(means=means), cell(means=means[:2]), cell(means=means[:1]), cell()]
    panel(tmp_path / "f.png", [row])
    notes = [note_of(axis) for axis in figures[0].axes]
    assert notes == [["2 means outside"], ["1 mean outside"], [], []]


def test_rings_around_the_whole_picture_are_counted_and_rings_that_cross_it_are_not(tmp_path, figures):
    means = np.zeros((3, 3))
    covariances = np.stack([np.eye(3) * scale for scale in (1e8, 1e-4, 1.0)])
    flat = np.diag([1e10, 0.01, 1.0])[None]
    crossing = cell(means=means[:1], covariances=flat)
    panel(tmp_path / "f.png", [[cell(means=means, covariances=covariances), crossing]])
    assert [note_of(axis) for axis in figures[0].axes] == [["1 ring outside"], []]


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'dpsep\[demo\]'"):
        panel(tmp_path / "f.png", [[cell()]])


@pytest.mark.parametrize(
    ("cells", "dims", "message"),
    [
        ([], (0, 1), "at least one row"),
        ([[cell()], []], (0, 1), "at least one panel"),
        ([[cell(labels=(0, 1))]], (0, 1), "as many labels"),
        ([[cell()]], (0, 3), "two different numbers from 0 to 2"),
        ([[cell()]], (1, 1), "two different numbers from 0 to 2"),
        ([[cell(covariances=np.ones((1, 3, 3)))]], (0, 1), "covariances without means"),
        ([[cell(means=np.full((1, 3), np.nan))]], (0, 1), "not finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_written(tmp_path, cells, dims, message):
    with pytest.raises(ValueError, match=message):
        panel(tmp_path / "f.png", cells, dims)
    assert not list(tmp_path.iterdir())
