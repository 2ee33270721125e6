"""`dpsep audit`: rows, exit codes, a target of one's own, and a leak in it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpsep.cli.commands import app
from dpsep.report.audits import plot_audit

OWN = """
import jax
import numpy as np
from dpsep import BayesianModel, Linear

def density(params, record):
    return jax.nn.log_sigmoid(record.y * params["u"])

X = np.linspace(-1, 1, 16).reshape(8, 2)
y = np.where(np.arange(8) % 3, 1.0, -1.0)

class Telling(BayesianModel):
    def fit(self, X, y, **more):
        super().fit(X, y, **more)
        self.total_ = np.nansum(X)
        return self

def settings():
    return {"links": {"u": Linear()}, "classes": [-1.0, 1.0], "bounds": (-1, 1), "delta": 1e-2, "steps": 2}

def mine():
    return BayesianModel(density, **settings()), X, y

def leaky():
    return Telling(density, **settings()), X, y

def wrong():
    return 3
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_ones_own_is_attacked_and_a_leak_beside_the_gate_is_found(
    own: Path, tmp_path: Path
) -> None:
    out, picture = tmp_path / "rows.json", tmp_path / "audit.png"
    options = ["--epsilon", "4", "--quick", "--jobs", "1"]
    code, text = call(f"{own}:mine", *options, "--json", str(out), "--plot", str(picture))
    assert code == 0, text
    rows = json.loads(out.read_text())
    assert {row["attack"] for row in rows} == {"canary", "membership", "one run", "replay"}
    for row in rows:
        assert {"target", "claimed", "lower_bound", "confidence", "caught"} <= set(row)
        assert not row["caught"]
        assert row["lower_bound"] is None or row["lower_bound"] <= row["claimed"]
    assert picture.read_bytes()[1:4] == b"PNG"
    code, text = call(f"{own}:leaky", *options, "--attack", "replay")
    assert code == 1
    assert "CAUGHT" in text
    assert "beside the releases" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cubic"], "there is no target 'cubic'"),
        (["missing.py:make"], "there is no file missing.py"),
        (["linear", "--epsilon", "0"], "positive numbers"),
        (["linear", "--epsilon", "one"], "positive numbers"),
        (["linear", "--attack", "guess"], "there is no attack 'guess'"),
        (["--matrix", "some"], "--matrix takes pairs or all"),
        (["--only"], "--only needs --controls or --matrix"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(arguments: list[str], message: str) -> None:
    code, text = call(*arguments)
    assert code == 2
    assert message in text
    assert len(text.strip().splitlines()) == 1


def test_a_file_must_have_the_function(own: Path) -> None:
    assert "has no function 'none'" in call(f"{own}:none")[1]
    assert "must return a private estimator" in call(f"{own}:wrong")[1]


def test_a_picture_needs_a_bound() -> None:
    with pytest.raises(ValueError, match="no row with a lower bound"):
        plot_audit(
            [{"target": "x", "attack": "replay", "claimed": 1.0, "lower_bound": None, "caught": False}]
        )
