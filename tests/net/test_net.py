"""Seeded fits give what they gave: a net under changes of the inside.

What each gave is kept in `kept.json`. A change that should alter nothing alters nothing here; where one must,
`python tests/net/keep.py` keeps the new results, and the commit says why each of them moved. `make test`
looks at the first combinations of kinds whose bits do not depend on the machine, `make deep` at all. Another
machine is had by `XLA_FLAGS=--xla_cpu_max_isa=AVX`.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .seen import FEDERATED, FITS, FOLDERS, OPEN, federated_fit, folder_of, open_fit, private_fit

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")  # of tables of a few rows

KEPT = Path(__file__).with_name("kept.json")
PARTS: dict[str, tuple[dict[str, Any], Callable[[str, Path], Any]]] = {
    "private": (FITS, private_fit),
    "open": (OPEN, open_fit),
    "federated": (FEDERATED, federated_fit),
    "folders": (FOLDERS, folder_of),
}
IN_TEST = 3
"""Combinations of a kind that `make test` looks at."""


def _long(name: str, seen: int) -> bool:
    """Whether `make deep` alone looks at a fit: there are enough of its kind, or its bits are of a machine.

    The search of a mixture's start is in single precision, and networks and variances of groups amplify last
    digits: on another machine, or compiled otherwise, such fits are others.
    """
    return seen > IN_TEST or any(kind in name for kind in ("mixture", "network", "mixed"))


def _named() -> list[Any]:
    found: list[Any] = []
    for part, (names, _) in PARTS.items():
        seen: Counter[str] = Counter()
        for name in names:
            kind = name.partition(":")[0]
            seen[kind] += 1
            marks = pytest.mark.deep if _long(name, seen[kind]) else ()
            found.append(pytest.param(part, name, marks=marks, id=f"{part}-{name}"))
    return found


@pytest.mark.parametrize(("part", "name"), _named())
def test_a_seeded_fit_gives_what_it_gave(part: str, name: str, tmp_path: Path) -> None:
    found = PARTS[part][1](name, tmp_path)
    kept = json.loads(KEPT.read_text("utf-8"))[part][name]
    expected, seen = kept.pop("result", {}), found.pop("result", {})
    assert found == kept
    assert list(seen) == list(expected)
    for key, value in expected.items():
        assert seen[key][0] == value[0], key
        np.testing.assert_allclose(seen[key][1:], value[1:], rtol=1e-6, atol=1e-9, err_msg=key)


def test_nothing_is_kept_of_what_is_gone() -> None:
    kept = json.loads(KEPT.read_text("utf-8"))
    assert {part: set(names) for part, names in kept.items()} == {
        part: set(names) for part, (names, _) in PARTS.items()
    }
