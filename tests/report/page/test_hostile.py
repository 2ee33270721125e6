"""Folders of strangers: whatever stands in them, a page is made, is well formed, and believes nothing bad."""

import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsep.privacy.checkpoint import WriteError
from dpsep.report.page import files, render, write_report

from .checks import Page, check_page, says_nothing_of_privacy
from .forged import put, restated
from .runs import changed, copied, seal

Runs = Callable[[str], Path]
NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></script><svg onload=alert(1)>",
    "\u202eesrever \u2066 \u0000 \ud800 \ufeff",
    "👩‍👩‍👧‍👦 עברית العربية",
    "x" * 100_000,
    "&lt;b&gt; &amp;#x3c;",
    "' style='x' onclick='y",
    "{{7*7}} ${7*7} <!-- -->",
    "",
)


def _scripts(page: Page) -> int:
    return sum(name in ("script", "img") for name, _ in page.elements)


@pytest.mark.parametrize("name", NASTY)
def test_names_of_columns_and_folders_are_shown_and_never_obeyed(
    copy: Runs, tmp_path: Path, name: str
) -> None:
    folder = copy("linear")
    text = (folder / "summary.csv").read_text("utf-8")
    quoted = '"' + name.encode("utf-8", "replace").decode().replace('"', '""') + '"'
    (folder / "summary.csv").write_text(text.replace("\na,", f"\n{quoted},"), "utf-8")
    restated(folder, put(leaks=[name]))
    # A parameter that no estimator has: the posterior's own summary is out of reach, and the file's is shown.
    changed(folder, "posterior.json", lambda content: content["parameters"].update({name[:200]: name}))
    page = check_page(render(folder, title=name))
    assert _scripts(page) == 1
    assert not any("\u202e" in text for text in page.text)


def test_a_schema_with_hostile_names_is_listed_as_text(copy: Runs) -> None:
    folder = copy("linear")
    schema = 'target = "<b>y</b>"\n[[columns]]\nname = "<b>y</b>"\nkind = "number"\n'
    schema += '[[columns]]\nname = "c"\nkind = "category"\ncategories = ["<i>", "</table>"]\n'
    (folder / "schema.toml").write_text(schema)
    seal(folder)
    page = check_page(render(folder))
    assert "Linear regression of <b>y</b>" in page.words
    assert "</table>" in page.words


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "", "x", "9" * 5000])
def test_numbers_that_are_none_or_too_large_do_not_break_a_picture(copy: Runs, cell: str) -> None:
    folder = copy("linear")
    lines = (folder / "summary.csv").read_text("utf-8").splitlines()
    name = lines[1].split(",")[0]
    lines[1] = ",".join([name, *[cell] * (len(lines[0].split(",")) - 1)])
    (folder / "summary.csv").write_text("\n".join(lines) + "\n")
    changed(folder, "posterior.json", lambda content: content["learned"].pop("posterior_") and None)
    page = check_page(render(folder))
    assert "could not be read" not in page.words
    for _, attributes in page.elements:
        assert "nan" not in str(attributes.get("x1", "")) + str(attributes.get("cx", ""))


def test_links_pipes_and_folders_in_the_place_of_files_are_not_opened(copy: Runs, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("name\nthe secret of another file\n")
    for name in (
        "summary.csv",
        "schema.toml",
        "metrics.json",
        "privacy.json",
        "posterior.json",
        "manifest.json",
    ):
        for make in (
            lambda path: os.symlink(secret, path),
            lambda path: os.mkfifo(path),
            lambda path: path.mkdir(),
            lambda path: os.symlink("/dev/zero", path),
        ):
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            for path in copy("linear").iterdir():
                if path.name != name:
                    (folder / path.name).write_bytes(path.read_bytes())
            make(folder / name)
            page = check_page(render(folder))
            assert says_nothing_of_privacy(page)
            assert "secret" not in page.words


def test_a_file_that_is_too_large_is_refused_in_a_sentence(
    copy: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy("linear")
    monkeypatch.setattr(files, "LARGEST", 1000)
    page = check_page(render(folder))
    assert "so it was not read" in page.words
    assert says_nothing_of_privacy(page)


def test_a_link_in_the_reports_place_is_replaced_and_never_written_through(
    copy: Runs, tmp_path: Path
) -> None:
    folder, victim = copy("linear"), tmp_path / "precious.txt"
    victim.write_text("precious")
    for out in (None, tmp_path / "out.html"):
        target = folder / "report.html" if out is None else out
        for aim in (victim, tmp_path / "nowhere", tmp_path):
            target.unlink(missing_ok=True)
            target.symlink_to(aim)
            assert write_report(folder, out) == target
            assert not target.is_symlink()
            assert "PRIVATE" in target.read_text("utf-8")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_or_a_pipe_in_the_reports_place_is_refused_in_words(copy: Runs, tmp_path: Path) -> None:
    folder = copy("linear")
    os.mkfifo(tmp_path / "pipe")
    for out in (tmp_path, tmp_path / "pipe", "."):
        with pytest.raises(WriteError, match="is not a regular file"):
            write_report(folder, out)
    (tmp_path / "file").touch()
    for place in ("missing", "file"):
        with pytest.raises(WriteError, match=rf"{place}/x\.html"):
            write_report(folder, tmp_path / place / "x.html")
    assert (tmp_path / "pipe").is_fifo()


def test_no_name_makes_a_line_of_its_own_or_a_text_without_end(copy: Runs) -> None:
    folder = copy("linear")
    text = (folder / "summary.csv").read_text("utf-8")
    line = "ssh-ed25519 AAAA evil"
    key = f"a\n{line}\n\tb"
    (folder / "summary.csv").write_text(
        text.replace("\na,", f'\n"{key}",').replace("\nb,", f"\n{'y' * 900},")
    )
    restated(folder, put(leaks=[key]))
    changed(folder, "posterior.json", lambda content: content["parameters"].update({key: key, "z" * 900: 1}))
    made = render(folder, title=key)
    assert line in made
    assert not any(one.strip().startswith("ssh-") for one in made.splitlines())
    assert "y" * 30 in made
    assert "y" * 301 not in made
    assert "z" * 301 not in made


def test_numbers_of_columns_without_end_are_not_counted_to(copy: Runs) -> None:
    for kind in ("linear", "mixture"):
        folder = copy(kind)

        def forge(content: Any) -> None:
            content["learned"].pop("feature_names_in_")
            content["learned"]["n_features_in_"] = 10**10

        changed(folder, "posterior.json", forge)
        check_page(render(folder))


def test_files_that_a_report_does_not_use_are_not_kept(copy: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy("linear")
    for place in range(20):
        (folder / f"f{place}").write_bytes(bytes(2**21))
    seal(folder)
    tracemalloc.start()
    found = files.read_folder(folder, ("posterior.json",))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.trouble == ()
    assert set(found.contents) == {"posterior.json"}
    assert most < 8 * 2**20
    monkeypatch.setattr(files, "MOST_BYTES", 2**23)
    page = check_page(render(folder))
    assert "was not read: the folder's files have more than 8 MB in all." in page.words
    assert says_nothing_of_privacy(page)


def test_deep_nesting_and_numbers_without_end_are_no_documents(copy: Runs) -> None:
    for text in ("[" * 200_000, '{"a":' * 200_000, "1" * 1_000_000, '{"private": ' + "9" * 100_000 + "}"):
        for name in ("privacy.json", "posterior.json", "metrics.json", "manifest.json"):
            folder = copy("linear")
            (folder / name).write_text(text)
            if name != "manifest.json":
                seal(folder)
            page = check_page(render(folder))
            assert name == "metrics.json" or says_nothing_of_privacy(page)


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path: Path) -> None:
    page = check_page(render(tmp_path))
    assert says_nothing_of_privacy(page)
    assert "There is no manifest.json." in page.words


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["", "<script>", "x" * 500, "words", "1"]),
    st.just([]),
    st.just({}),
    st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=5)), max_size=5),
    st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.floats()), max_size=3),
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place of a document that can be replaced: what it stands in, and under which key."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(min(len(value), 3)))
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


def test_a_part_that_cannot_be_read_is_where_the_navigation_leads(whole: Runs, tmp_path: Path) -> None:
    folder = copied(whole("mixture"), tmp_path)
    document = json.loads((folder / "posterior.json").read_bytes())
    document["learned"]["weights_"] = [""]
    (folder / "posterior.json").write_text(json.dumps(document), "utf-8")
    seal(folder)
    assert "could not be read" in check_page(render(folder)).words


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    kind=st.sampled_from(["linear", "mixture", "network", "logistic"]),
    name=st.sampled_from(["posterior.json", "privacy.json", "metrics.json"]),
    data=st.data(),
)
def test_any_part_of_a_document_may_be_anything(
    whole: Runs, kind: str, name: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = copied(whole(kind), Path(place))
        if not (folder / name).exists():
            name = "posterior.json"
        document = json.loads((folder / name).read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            inside, key = data.draw(st.sampled_from(_places(document)))
            inside[key] = data.draw(VALUES)
        (folder / name).write_text(json.dumps(document), "utf-8")
        seal(folder)
        page = check_page(render(folder))
        assert _scripts(page) == 1
        assert "PRIVATE" in page.words
        if "NOT PRIVATE" in page.words:
            assert says_nothing_of_privacy(page)
