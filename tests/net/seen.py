"""What seeded fits release, return, charge and write, in few numbers.

`FITS` are the combinations of `dpsep_lab.matrix` in which every pair of options occurs, `OPEN` fits without
privacy by every method, `FEDERATED` fits over sites, `FOLDERS` what commands write. Each gives a document of
JSON: texts and integers as digests, arrays by their size, norm and first numbers. Integers before noise are
the sharpest part: each step's depend on all releases before it, and rounding to the grid makes them the same
on every machine.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from typer.testing import CliRunner

import dpsep
from dpsep.audit.replay import Trace, arrays_of, record
from dpsep.cli.commands import app
from dpsep.federated import Federation, InProcess, Site, fit
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.noise import SeededStream
from dpsep_lab.matrix import GROUPS, _table, covering, kinds

Document = dict[str, Any]
FIRST = 6
"""Numbers of an array that are kept."""


def digest(*parts: bytes) -> str:
    """A short hash."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def told(value: Any) -> str:
    """Digest of a document; eight digits of its numbers count."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): rounded(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(part) for part in value]
        return f"{value:.8g}" if isinstance(value, float) else value

    return digest(json.dumps(rounded(value), sort_keys=True, default=str).encode())


def numbers(value: Any) -> list[Any]:
    """An array by its shape, its norm and its first numbers."""
    array = np.nan_to_num(np.asarray(value, np.float64), posinf=1e9, neginf=-1e9)
    few = [np.linalg.norm(array), *array.ravel()[:FIRST]]
    return [list(array.shape), *(float(f"{number:.10g}") for number in few)]


def _of_trace(trace: Trace) -> Document:
    sums = [total.astype("<i8").tobytes() for release in trace.releases for total in release.sums]
    return {
        "releases": len(trace.releases),
        "sums": digest(*sums),
        "steps": told(trace.steps),
        "messages": trace.messages,
        "ledger": told(trace.rows),
        "statement": told(trace.statement),
        "result": {name: numbers(value) for name, value in sorted(trace.outcome.items())},
    }


def _combinations() -> dict[str, tuple[str, dict[str, Any]]]:
    found = {}
    for name, kind in kinds().items():
        for options in covering(kind.options):
            words = ", ".join(f"{key}={value}" for key, value in options.items())
            found[f"{name}: {words}"] = (name, options)
    return found


FITS = _combinations()


def private_fit(name: str, folder: Path) -> Document:
    """A private fit, charged to a ledger."""
    which, options = FITS[name]
    kind = kinds()[which]
    X, y, groups = _table(kind.table)
    ledger = Ledger.create(
        folder / "ledger.db",
        epsilon=100.0,
        delta=0.5,
        relation=options["relation"],
        unit=options.get("unit", "record"),
    )

    def make() -> Any:
        return kind.make(epsilon=4.0, delta=1e-2, steps=4, random_state=1, **options)

    return _of_trace(record(make, X, y, ledger, groups=groups if "unit" in options else None))


def _open_fits() -> dict[str, Callable[[], Any]]:
    box: dict[str, Any] = {"private": False, "bounds": (-1.0, 1.0), "random_state": 0}
    labels = box | {"classes": [-1.0, 1.0]}
    found: dict[str, tuple[Callable[..., Any], dict[str, Any], str, tuple[str, ...]]] = {
        "linear": (dpsep.LinearRegression, box, "number", ("sep", "ep", "adf")),
        "logistic": (dpsep.LogisticRegression, labels, "label", ("sep", "ep", "adf")),
        "probit": (dpsep.ProbitRegression, labels, "label", ("sep", "ep", "adf")),
        "poisson": (dpsep.PoissonRegression, box, "count", ("sep", "ep", "adf")),
        "mixture": (dpsep.GaussianMixture, box | {"n_components": 2}, "none", ("sep", "vi", "em")),
        "known mixture": (
            dpsep.GaussianMixture,
            box | {"n_components": 2, "weights": (0.5, 0.5), "noise_scale": 0.3},
            "none",
            ("sep", "ep"),
        ),
        "network": (
            dpsep.NetworkRegressor,
            box | {"hidden": 3, "steps": 4, "target_bounds": (-1.0, 1.0)},
            "number",
            ("sep", "vi", "point", "adf"),
        ),
        "network classifier": (
            dpsep.NetworkClassifier,
            labels | {"hidden": 3, "steps": 4},
            "label",
            ("sep", "vi", "point"),
        ),
        "mixed": (
            dpsep.MixedRegressor,
            box | {"groups": GROUPS, "target_bounds": (-1.0, 1.0)},
            "number",
            (),
        ),
        "mixed classifier": (dpsep.MixedClassifier, labels | {"groups": GROUPS}, "label", ()),
    }

    def fitted(kind: Callable[..., Any], options: dict[str, Any], outcome: str) -> Any:
        X, y, groups = _table(outcome)
        return kind(**options).fit(X, y, **({"groups": groups} if "groups" in options else {}))

    return {
        name if method is None else f"{name} by {method}": partial(
            fitted, kind, options if method is None else options | {"method": method}, outcome
        )
        for name, (kind, options, outcome, methods) in found.items()
        for method in methods or (None,)
    }


OPEN = _open_fits()


def open_fit(name: str, _: Path) -> Document:
    """A fit without privacy."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = OPEN[name]()
    return {
        "messages": sorted({type(one.message).__name__ for one in caught}),
        "result": {key: numbers(value) for key, value in sorted(arrays_of(fitted).items())},
    }


FEDERATED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "linear, noise at the server": ("linear", {}, {"mode": "server"}),
    "linear, noise at the sites": ("linear", {}, {"mode": "sites", "honest": 2}),
    "linear, noise of each site's own": ("linear", {}, {"mode": "own"}),
    "logistic, sampled": ("logistic", {"sampling": 0.5}, {"mode": "server"}),
    "poisson, replace-one": ("poisson", {"relation": "replace-one"}, {"mode": "server"}),
    "probit, private scaling": ("probit", {"bounds": None}, {"mode": "server"}),
}


def federated_fit(name: str, folder: Path) -> Document:
    """A fit over three sites in this process."""
    which, changes, rules = FEDERATED[name]
    kind = kinds()[which]
    X, y, _ = _table(kind.table)
    X, y = np.tile(X, (4, 1)), np.tile(y, 4)
    sites: dict[str, Site] = {}
    for place, (begin, end) in enumerate(((0, 20), (20, 52), (52, 96))):
        home = folder / f"site {place}"
        home.mkdir()
        ledger = Ledger.create(
            home / "ledger", epsilon=50.0, delta=0.5, relation=changes.get("relation", "zero-out")
        )
        at = f"s{place}"
        sites[at] = Site(at, (X[begin:end], y[begin:end]), ledger, home / "state", stream=SeededStream(place))
    options = {"bounds": (-1.0, 1.0), "epsilon": 2.0, "delta": 1e-2, "steps": 3, "random_state": 2}
    if which == "linear":
        options["target_bounds"] = (-1.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsep.PrivacyLeakWarning)
        fitted = fit(kind.make(**(options | changes)), Federation(InProcess(sites), **rules))
    stated = {key: value for key, value in fitted.privacy_.to_dict().items() if key not in ("run", "ledger")}
    rows = {
        at: [(row.kind, row.epsilon, row.delta) for row in site.ledger.rows()] for at, site in sites.items()
    }
    return {
        "statement": told(stated),
        "ledgers": told(rows),
        "result": {key: numbers(value) for key, value in sorted(arrays_of(fitted).items())},
    }


FOLDERS: dict[str, tuple[str, ...]] = {
    "linear": ("--target", "y", "--bounds", "y=-4:4"),
    "logistic": ("--target", "ill"),
    "probit": ("--target", "ill", "--model", "probit"),
    "poisson": ("--target", "visits", "--model", "poisson"),
    "mixture": ("--model", "mixture", "--components", "2"),
    "network": ("--target", "y", "--model", "network", "--bounds", "y=-4:4", "--hidden", "4"),
    "network classifier": ("--target", "ill", "--model", "network-classifier", "--hidden", "4"),
    "linear, private scaling": (
        "--target",
        "y",
    ),
    "linear with metrics": ("--target", "y", "--bounds", "y=-4:4", "--metrics-epsilon", "1"),
}
_CHANGING = re.compile(
    r"[0-9a-f]{32,64}|\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|\+00:00)?)?|\d+\.\d+ s\b"
)
_NUMBER = re.compile(r"-?\d+\.\d{4,}(?:e-?\d+)?")
_ANY_NUMBER = re.compile(r"[-−]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")


def plain(text: str, folder: Path) -> str:
    """A text without what differs between any two runs: times, names of runs, places, last digits."""
    text = _CHANGING.sub("#", text.replace(str(folder), "."))
    return _NUMBER.sub(lambda found: f"{float(found[0]):.6g}", text)


class _Page(HTMLParser):
    """Names and texts of a page's elements; its numbers are those of the files beside it, or of pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(f"<{tag}>")

    def handle_data(self, data: str) -> None:
        self.seen.append(_ANY_NUMBER.sub("#", data))


def _words(path: Path, folder: Path) -> str:
    text = plain(path.read_text("utf-8"), folder)
    return digest("\n".join(_Page(text).seen if path.suffix == ".html" else [text]).encode())


def folder_of(name: str, folder: Path) -> Document:
    """What `dpsep fit`, `predict` and `report` write and say, with frozen randomness."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(-1, 1, (2, 400)).round(4)
    columns = {
        "a": a,
        "b": b,
        "y": (1 + a - 2 * b + 0.1 * rng.standard_normal(400)).round(5),
        "ill": np.where(rng.uniform(size=400) < 1 / (1 + np.exp(-4 * a)), "yes", "no"),
        "visits": rng.poisson(np.exp(0.5 + a)),
    }
    arguments = FOLDERS[name]
    target = arguments[arguments.index("--target") + 1] if "--target" in arguments else None
    kept = ["a", "b", *([target] if target else [])]
    pl.DataFrame({key: columns[key] for key in kept}).write_csv(folder / "table.csv")
    pl.DataFrame({key: columns[key][:5] for key in ("a", "b")}).write_csv(folder / "new.csv")
    if target == "ill":
        arguments = (*arguments, "--classes", "no,yes")
    if "private scaling" not in name:
        arguments = (*arguments, "--bounds", "a=-1:1", "--bounds", "b=-1:1")
    words = [iter(range(10**6))]

    def frozen(size: int) -> bytes:
        return hashlib.shake_256(next(words[0]).to_bytes(8, "little")).digest(size)

    run = folder / "run"
    said = []
    with mock.patch("os.urandom", frozen):
        for command in (
            ("fit", folder / "table.csv", "--epsilon", 2, *arguments, "--out", run, "--json"),
            ("predict", run, folder / "new.csv", "--out", folder / "out.csv"),
            ("report", run),
        ):
            done = CliRunner().invoke(app, [str(part) for part in command])
            said.append([done.exit_code, *(plain(done.output, folder).splitlines()[-3:])])
    files = {
        str(path.relative_to(folder)): _words(path, folder)
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }
    return {"said": said, "files": files}
