"""The page of the survey: every block is made of the kept results, and pictures are drawn."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep_lab.bench.honesty.cells import matching, with_twins

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location(
        "honesty_page", ROOT / "lab" / "tools" / "docs" / "honesty.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines() -> list[dict[str, Any]]:
    """Lines of made-up fits, calibrated but for the rare coefficients at epsilon 1."""
    cells = matching("logistic/rare/n10000,logistic/drawn,poisson/two-rare/n10000,adassp/linear/plain")
    out = []
    for number, cell in enumerate(with_twins(cells) + [cell for cell in cells if cell.who != "dpsep"]):
        classes = ["intercept", "common", "common", "common", "rare" if "rare" in cell.design else "common"]
        rng = np.random.default_rng(number)
        fits = []
        for seed in range(30):
            z = rng.standard_normal(5)
            z[-1] -= 3.0 * (cell.epsilon == 1 and classes[-1] == "rare")
            fit: dict[str, Any] = {"seed": seed, "mean": (0.1 * z).tolist(), "sd": [0.1] * 5}
            fit |= {"truth": [0.0] * 5, "bare": [0.09] * 5, "prior": [1.0] * 5, "weak": False, "seconds": 0.1}
            fits.append(fit | {"region": float(rng.uniform()), "tarp": float(rng.uniform())})
        line = {"cell": cell.name, "code": "x", "version": "9", "classes": classes, "floor": [1e-3] * 5}
        out.append(line | {"fits": fits, "failed": {}})
    absent = {
        "cell": "student/rare/n10000/eps1/zero-out/full/bounds",
        "code": "x",
        "classes": [],
        "floor": [],
    }
    out.append(absent | {"absent": "no such estimator", "fits": [], "failed": {}})
    return [{"cell": out[0]["cell"], "code": "older", "fits": [], "failed": {}}, *out]


def test_a_page_is_made_of_fits_and_found_to_be_up_to_date(tool: Any, tmp_path: Path) -> None:
    path = tmp_path / "fits.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines()))
    docs = tmp_path / "docs"
    assert tool.main([str(path), "--out", str(docs)]) == 0
    page = (docs / "honesty.md").read_text()
    assert not re.search(r"<!-- made: (\w+) -->\s*<!-- end -->", page)
    assert "| `logistic/rare/n10000/eps1/zero-out/full/bounds` | rare 0/1 | 0." in page
    assert "no estimator for: student" in page
    assert "| adassp |" in page
    assert "nan" not in page
    pictures = re.findall(r"\((benchmarks/\w+\.png)\)", page)
    assert len(pictures) == 4
    assert all((docs / name).stat().st_size > 5000 for name in pictures)
    assert tool.main(["--check", "--out", str(docs)]) == 0
    (docs / "honesty.md").write_text(page.replace("0.9", "0.8", 1))
    assert tool.main(["--check", "--out", str(docs)]) == 1
