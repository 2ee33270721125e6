"""Promises and proofs are tied to what holds them: to tests that exist, printed sentences, pages in use."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from dpsep.estimators.statement import PrivacyStatement

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dpsep"
CLAIMS = ROOT / "docs" / "claims.md"
PROOFS = sorted((ROOT / "docs" / "proofs").glob("*.md"))
PAGES = [page.name for page in PROOFS]
DOCUMENTS = ("README.md", "SECURITY.md", "docs/guarantee.md")
TEST = re.compile(r"`((?:lab/)?tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"The proof is in docs/proofs/([\w-]+\.md)\.")
SECTIONS = (
    "What is released",
    "Relation and neighbours",
    "Sensitivity",
    "Event",
    "Public",
    "Assumed",
    "Tests",
)
OPEN = {"estimators/network_open.py", "inference/fast_batches.py"}
"""Modules that build blocks for what is not private."""


@cache
def functions(path: Path) -> frozenset[str]:
    """Names of all functions of a file, without running it."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


@cache
def links() -> dict[str, tuple[str, ...]]:
    """Pages that the docstring of each module links to."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.relative_to(SOURCE).as_posix()] = tuple(LINK.findall(plain(text)))
    return found


def plain(text: str) -> str:
    """Text as one line."""
    return " ".join(text.split())


def claims() -> list[tuple[str, str, str]]:
    """Document, sentence and tests of every row of the table of claims."""
    found, document = [], ""
    text = CLAIMS.read_text(encoding="utf-8").split("\n## What `make deep`")[
        0
    ]  # that section is made by a tool
    for line in text.splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ").strip("`")
        elif line.startswith("| ") and not line.startswith("| claim"):
            sentence, tests = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3])
            found.append((document, sentence.replace("\\|", "|"), tests))
    return found


@pytest.mark.parametrize("page", [CLAIMS, *PROOFS], ids=lambda page: page.name)
def test_every_test_that_is_named_exists(page: Path) -> None:
    named = TEST.findall(page.read_text(encoding="utf-8"))
    assert named
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or name not in functions(ROOT / path) or not name.startswith("test_")
    ]
    assert missing == []


def test_nothing_that_looks_like_a_test_escapes_the_check() -> None:
    for page in (CLAIMS, *PROOFS):
        text = page.read_text(encoding="utf-8")
        assert text.count("::") == len(TEST.findall(text)), page.name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_sentence_that_is_claimed_is_printed_word_for_word(document: str) -> None:
    printed = plain((ROOT / document).read_text(encoding="utf-8"))
    claimed = [sentence for where, sentence, _ in claims() if where == document]
    assert claimed
    assert [sentence for sentence in claimed if sentence not in printed] == []


def test_every_claim_has_a_test_or_says_why_it_has_none() -> None:
    rows = claims()
    assert {where for where, _, _ in rows} == set(DOCUMENTS)
    assert [sentence for _, sentence, tests in rows if not TEST.search(tests) and len(tests) < 30] == []


def test_every_claim_stands_once() -> None:
    sentences = [(where, sentence) for where, sentence, _ in claims()]
    assert len(set(sentences)) == len(sentences)


def test_every_sentence_of_the_guarantee_in_the_readme_is_claimed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = plain(text.split("## What is guaranteed")[1].split("\n## ")[0])
    for where, sentence, _ in claims():
        if where == "README.md":
            section = section.replace(sentence, "")
    assert re.sub(r"[\s.;]+", "", section) == ""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_linked_from_a_docstring_and_listed(page: str) -> None:
    assert any(page in found for found in links().values())
    assert f"proofs/{page}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    if page != "index.md":
        assert f"]({page})" in (ROOT / "docs" / "proofs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in ("index.md", "gate.md", "isolation.md")]
)
def test_a_page_names_relation_sensitivity_event_and_what_is_public(page: str) -> None:
    text = (ROOT / "docs" / "proofs" / page).read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == SECTIONS


@pytest.mark.parametrize("page", [page for page in PAGES if page != "index.md"])
def test_a_page_names_the_modules_that_link_to_it(page: str) -> None:
    text = (ROOT / "docs" / "proofs" / page).read_text(encoding="utf-8")
    assert [module for module, found in links().items() if page in found and module not in text] == []


def test_docstrings_link_to_pages_that_are_there() -> None:
    assert {page for found in links().values() for page in found} <= set(PAGES)


def test_every_module_that_makes_a_release_links_to_its_proof() -> None:
    makers = set()
    for path in SOURCE.rglob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
        ]
        names = {getattr(call.func, "id", getattr(call.func, "attr", "")) for call in calls}
        if names & {"Gate", "Block", "authorise", "authorise_again"}:
            makers.add(path.relative_to(SOURCE).as_posix())
    assert makers >= OPEN, "the exception is none any more"
    assert [module for module in sorted(makers - OPEN) if not links()[module]] == []


@pytest.mark.parametrize("module", sorted(OPEN))
def test_a_module_without_a_proof_never_has_a_private_gate(module: str) -> None:
    text = (SOURCE / module).read_text(encoding="utf-8")
    assert "Nothing here is private" in text
    assert "privacy.gate" not in text


@pytest.mark.parametrize("unit", ["record", "group"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_a_statement_prints_epsilon_with_its_relation_and_its_unit(relation: str, unit: str) -> None:
    made = PrivacyStatement(
        0.75, 1e-5, relation, unit, "full batch", 9.0, 16, "exact", "declared bounds", True, "run"
    )
    assert f"(0.75, 1e-05)-differentially private for each {unit} ({relation})" in made.sentence()
    assert {"epsilon": 0.75, "relation": relation, "unit": unit}.items() <= made.to_dict().items()


def test_the_files_to_read_are_there_and_as_long_as_the_page_says() -> None:
    text = (ROOT / "docs" / "guarantee.md").read_text(encoding="utf-8").split("## Which files to read")[1]
    listed = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| (\d+) \|", text, re.MULTILINE)
    assert len(listed) == 12
    for name, lines in listed:
        found = len((SOURCE / name).read_text(encoding="utf-8").splitlines())
        assert found == pytest.approx(int(lines), rel=0.1), f"{name} has {found} lines"
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (SOURCE / name).is_file()
