"""The page of the accuracy benchmark is what its kept results make it, and says what is met and not met."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lab.tools.docs import frontier_tables  # noqa: E402
from lab.tools.docs.frontier_tables import Results, estimate, packed  # noqa: E402


def _line(dataset: str, who: str, split: int, rmse: float | None, ll: float | None, **more: object) -> dict:
    line: dict = {"dataset": dataset, "split": split, "who": who, "records": 10, "columns": 2}
    line |= {"epsilon": None if who == "pbp" else 1.0, "rmse": rmse, "log_likelihood": ll}
    return line | {"coverage": 0.9, "calibration": 0.0, "seconds": 1.0, "versions": {"jax": "1"}, **more}


def test_the_page_is_rendered_from_the_results_that_are_kept() -> None:
    command = [sys.executable, str(ROOT / "lab" / "tools" / "docs" / "frontier.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_means_come_with_their_standard_errors() -> None:
    found = estimate([1.0, 2.0, 3.0, 6.0])
    assert found is not None
    assert (found.mean, found.splits) == (3.0, 4)
    assert found.error == (14 / 3 / 4) ** 0.5
    assert str(found) == "3.0 ± 1.1"
    assert str(estimate([0.5])) == "0.5"
    assert estimate([]) is None


def test_targets_are_met_or_not_by_the_mean_and_what_is_missing_says_so() -> None:
    lines = [_line("wine", "ours", k, 0.64, ll) for k, ll in enumerate((-0.99, -0.985))]
    text = frontier_tables.targets(Results(packed(lines)))
    assert "| wine | RMSE | 0.645 | 0.64 | met |" in text
    assert "| wine | mean test log-likelihood | -0.98 | -0.9875 ± 0.0025 | **not met** |" in text
    assert "| power | RMSE | 4.08 | missing | missing |" in text


def test_differences_are_paired_over_the_splits_that_both_have() -> None:
    lines = [
        *(_line("wine", "ours", k, 1.0, value) for k, value in enumerate((-1.0, -2.0, -9.0))),
        *(_line("wine", "pbp", k, 2.0, value) for k, value in enumerate((-1.5, -2.7))),
    ]
    results = Results(packed(lines))
    gap = results.paired("wine", "ours", "log_likelihood", against="pbp")
    assert gap is not None
    assert (round(gap.mean, 6), gap.splits) == (0.6, 2)
    ratio = results.paired("wine", "ours", "rmse", against="pbp", relative=True)
    assert ratio is not None
    assert ratio.mean == -50.0
    assert "not met" not in frontier_tables.dream(results).split("| wine")[1].split("\n")[0].split("|")[-2]


def test_a_peer_that_is_ahead_is_named() -> None:
    lines = [_line("wine", "ours", 0, 0.64, -0.97), _line("wine", "adassp", 0, 0.63, -0.99)]
    text = frontier_tables.ahead(Results(packed(lines)))
    assert (
        "| wine | -0.97 | -0.99 (AdaSSP, linear) | ahead | 0.64 | 0.63 (AdaSSP, linear) | **behind** |"
        in text
    )
    assert "in RMSE on 0 " in text


def test_failures_are_shown_and_count_for_nothing() -> None:
    lines = [_line("wine", "ours", 0, 0.64, -0.97), _line("wine", "ours", 1, None, None, failed="Error: a|b")]
    results = Results(packed(lines))
    assert results.values("wine", "ours", "rmse") == {0: 0.64}
    assert "Error: a/b" in frontier_tables.failures(results)
