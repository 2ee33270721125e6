"""Every stage of every recipe goes on after kill -9: the release that was lost is charged to its stage."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import dpsep
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.release_log import ReleaseLog

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1.0, 1.0, (60, 2))
Y = X @ [1.0, -0.5] + 0.1 * GENERATOR.normal(size=60)
GROUPS = np.arange(60) % 6
COMMON: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-2, "steps": 2}


def student(params: Any, record: Any) -> Any:
    return -2.5 * jnp.log1p((record.y - params["u"]) ** 2 / 0.04)


FITS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "regression": (lambda **k: dpsep.LinearRegression(**COMMON, **k).fit(X, Y), ("scaling", "fit")),
    "mixture": (
        lambda **k: dpsep.GaussianMixture(2, **COMMON, **k).fit(X),
        ("scaling", "sketch", "fit"),
    ),
    "network": (
        lambda **k: dpsep.NetworkRegressor(hidden=3, **COMMON, **k).fit(X, Y),
        ("scaling", "moments", "fit"),
    ),
    "mixed": (
        lambda **k: dpsep.MixedRegressor(groups=6, **COMMON, **k).fit(X, Y, groups=GROUPS),
        ("scaling", "fit"),
    ),
    "own": (
        lambda **k: dpsep.BayesianModel(student, links={"u": dpsep.Linear()}, **COMMON, **k).fit(X, Y),
        ("scaling", "fit"),
    ),
}


def fit(name: str, folder: Path) -> Any:
    """Fit, charged to the folder's ledger and kept in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FITS[name][0](ledger=Ledger.open(folder / "ledger"), checkpoint=folder / "run")


def killed(name: str, folder: str, stage: str) -> None:
    """Fit, and die when the first release of a stage was made and not yet kept."""
    keep = ReleaseLog.keep

    def die(log: ReleaseLog, now: str, released: Any) -> None:
        if now == stage:
            os.kill(os.getpid(), signal.SIGKILL)
        keep(log, now, released)

    ReleaseLog.keep = die  # pyright: ignore[reportAttributeAccessIssue]
    fit(name, Path(folder))


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        pytest.param(name, stage, marks=() if name == "mixture" else pytest.mark.deep)
        for name, (_, stages) in FITS.items()
        for stage in stages
    ],
)
def test_a_stage_that_was_killed_goes_on_and_is_charged_one_release_more(
    name: str, stage: str, tmp_path: Path
) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=9.0, delta=0.1)
    code = f"from estimators.test_stages import killed; killed({name!r}, {str(tmp_path)!r}, {stage!r})"
    place = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | place, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    model = fit(name, tmp_path)
    kinds = [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]
    assert kinds == ["charge", "extra-step", "finished"]
    first = next(row for row in ledger.rows() if row.kind == "charge").event["parts"]
    parts = model.privacy_.schedule["parts"]
    assert [part["name"] for part in parts] == list(FITS[name][1])
    assert [part["steps"] for part in parts] == [
        before["steps"] + (part["name"] == stage) for part, before in zip(parts, first, strict=True)
    ]
    assert model.privacy_.epsilon == pytest.approx(ledger.spent().epsilon, rel=1e-9)
