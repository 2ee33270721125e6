"""Small real runs, made once by the command line, and copies of them to damage."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from typer.testing import CliRunner

from dpsep.cli.commands import app
from dpsep.estimators import store

BOUNDS = ("--bounds", "a=-1:1", "--bounds", "b=-1:1")
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("a", "b", "y"), ("--target", "y", *BOUNDS, "--bounds", "y=-4:4", "--epsilon", "3")),
    "weaker": (("a", "b", "y"), ("--target", "y", *BOUNDS, "--bounds", "y=-4:4", "--epsilon", "1")),
    "open": (("a", "b", "y"), ("--target", "y", *BOUNDS, "--bounds", "y=-4:4", "--no-private")),
    "logistic": (("a", "b", "ill"), ("--target", "ill", "--classes", "no,yes", *BOUNDS, "--epsilon", "3")),
    "mixture": (("a", "b"), ("--model", "mixture", "--components", "2", *BOUNDS, "--epsilon", "3")),
    "network": (
        ("a", "b", "y"),
        (
            "--target",
            "y",
            "--model",
            "network",
            "--hidden",
            "4",
            *BOUNDS,
            "--bounds",
            "y=-4:4",
            "--epsilon",
            "3",
        ),
    ),
}
"""Columns and options of each kind of run."""
PUBLIC = ("linear", "logistic", "network")
"""Kinds that are scored on rows declared public."""
_made: dict[str, Path] = {}


def run_folder(kind: str, make_folder: Callable[[str], Path]) -> Path:
    """Return the folder of a run, fitted on the first call; it is not to be changed."""
    if kind not in _made:
        names, options = KINDS[kind]
        place = make_folder(kind)
        table = place / "table.csv"
        pl.DataFrame(_columns()).select(names).write_csv(table)
        more = ("--public-test", table) if kind in PUBLIC else ()
        words = ("fit", table, *options, *more, "--out", place / kind, "--quiet")
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        _made[kind] = place / kind
    return _made[kind]


def _columns(rows: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    a, b = rng.uniform(-1, 1, (2, rows)).round(4)
    return {
        "a": a,
        "b": b,
        "y": (1 + a - 2 * b + 0.1 * rng.standard_normal(rows)).round(5),
        "ill": np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-4 * a)), "yes", "no"),
    }


def copied(folder: Path, place: Path) -> Path:
    """Return a copy to damage."""
    return Path(shutil.copytree(folder, place / folder.name, dirs_exist_ok=True))


def changed(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change a JSON file of a run and seal the folder anew, so that it looks whole."""
    document = json.loads((folder / name).read_bytes())
    answer = change(document)
    (folder / name).write_text(json.dumps(document if answer is None else answer), "utf-8")
    seal(folder)


def seal(folder: Path) -> None:
    """Write a manifest that fits the files as they are: what somebody who can write the folder can do."""
    names = [
        path.name for path in sorted(folder.iterdir()) if path.name not in ("manifest.json", "report.html")
    ]
    manifest: dict[str, Any] = {
        "format": store.FORMAT,
        "files": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names},
    }
    manifest["sha256"] = store.sha256(store.as_json(manifest))
    (folder / "manifest.json").write_text(store.as_json(manifest), "utf-8")


def wide_summary(rows: int) -> str:
    """Return a summary of many coefficients."""
    rng = np.random.default_rng(0)
    lines = ["name,mean,sd,low,high,noise_share,width_without_noise"]
    for place, mean in enumerate(rng.normal(size=rows)):
        lines.append(f"column {place},{mean},0.1,{mean - 0.16},{mean + 0.16},0.3,0.27")
    return "\n".join(lines) + "\n"
