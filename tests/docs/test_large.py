"""The page on large tables: its examples run, and it names every estimator."""

import re
import warnings
from pathlib import Path

import pytest

import dpsep

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "large.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            exec(compile(block, "docs/large.md", "exec"), names)
    assert (tmp_path / "new.parquet").exists()


def test_every_estimator_is_named() -> None:
    plain = ("LinearRegression", "LogisticRegression", "PoissonRegression", "ProbitRegression")
    kinds = [name for name in dpsep.__all__ if hasattr(getattr(dpsep, name), "fit") and name not in plain]
    assert len(kinds) >= 6
    assert [name for name in kinds if f"`{name}`" not in PAGE] == []
