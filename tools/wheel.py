"""The wheel as a user gets it: what is in it, and a morning's work with it in an empty environment.

    python tools/wheel.py --out build/deep/wheel     # what was found, in found.json

The wheel is built and installed beside the pinned requirements and nothing else: no extra, no laboratory, no
file of this repository. There it makes a ledger, plans, fits, predicts, reports, loads a kept posterior and
attacks an estimator of one's own; what only the laboratory does says how to install it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = re.compile(r"dpsep_lab|bench|paper|theorem|ablation|controls|matrix|test_|data/registry")
"""What belongs to the laboratory, in the path of a module."""
TABLE = """
import numpy as np
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 2))
y = rng.poisson(np.exp(0.5 + X @ [0.8, -0.5]))
cost = 100 * np.exp(X @ [0.5, 0.2]) * rng.gamma(2, 0.5, 600)
rows = np.column_stack([X, y, cost])
np.savetxt("table.csv", rows, delimiter=",", header="age,dose,visits,cost", comments="", fmt="%.6g")
"""
OWN = """
import numpy as np
from dpsep import LogisticRegression

X = np.linspace(-1, 1, 16).reshape(8, 2)
y = np.where(np.arange(8) % 3, 1.0, -1.0)

def mine():
    return LogisticRegression(classes=[-1.0, 1.0], bounds=(-1, 1), delta=1e-2, steps=2), X, y
"""
LOADED = """
import sys
from dpsep.estimators.store import load
model = load("run")
print(model.summary())
assert not [name for name in sys.modules if name.startswith("dpsep_lab")]
"""
COMMANDS = (
    "dpsep ledger create study.db --epsilon 3 --delta 1e-4",
    "dpsep plan --model poisson --records 600 --features 2 --epsilon 1",
    "dpsep schema table.csv --target visits --epsilon 0.5 --ledger study.db --out schema.toml",
    "dpsep fit table.csv --schema schema.toml --model poisson --epsilon 1 --ledger study.db --out run",
    "dpsep fit table.csv --target cost --model gamma --epsilon 1 --ledger study.db --out costs",
    "dpsep predict run table.csv --out predicted.csv",
    "dpsep report run",
    "dpsep ledger show study.db",
    "python loaded.py",
    "dpsep audit own.py:mine --attack replay --quick --jobs 1",
)
"""A morning's work; each must end with 0."""
REFUSED = ("dpsep bench", "dpsep paper table1", "dpsep audit --controls")
"""What the laboratory does: each must end with 2 and name the package to install."""


def build(folder: Path) -> Path:
    """Build the wheel and return it."""
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    return next(folder.glob("dpsep-*.whl"))


def contents(wheel: Path) -> tuple[list[str], list[str]]:
    """Return the wheel's files, and those of them that are not the library's."""
    names = zipfile.ZipFile(wheel).namelist()
    inside = [name.removeprefix("dpsep/") for name in names if name.startswith("dpsep/")]
    others = [name for name in names if not re.match(r"dpsep/|dpsep-[\d.]+\.dist-info/", name)]
    return names, others + [name for name in inside if FOREIGN.search(name)]


def run(command: list[str], folder: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command; one that fails is an error with what it printed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, env=dict(os.environ) | changes
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def work(wheel: Path, folder: Path) -> tuple[int, int]:
    """Install a wheel into an empty environment and use it; return the numbers of answers and of refusals."""
    home = folder / "environment"
    venv.create(home, with_pip=True)
    programs = home / "bin"
    constraints = str(ROOT / "constraints.txt")
    install = ["-m", "pip", "install", "--quiet", "--no-compile", "--constraint", constraints, str(wheel)]
    run([str(programs / "python"), *install])
    for name, text in (("table.py", TABLE), ("own.py", OWN), ("loaded.py", LOADED)):
        (folder / name).write_text(text, encoding="utf-8")
    # No path of this repository reaches the environment.
    clean = {"PYTHONPATH": "", "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
    run([str(programs / "python"), "table.py"], folder, **clean)
    for words in COMMANDS:
        program, *rest = words.split()
        run([str(programs / program), *rest], folder, **clean)
        print(f"ok: {words}", flush=True)
    refused = 0
    for words in REFUSED:
        program, *rest = words.split()
        done = subprocess.run(
            [str(programs / program), *rest],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            env=dict(os.environ) | clean,
        )
        if done.returncode != 2 or "dpsep-lab" not in done.stdout + done.stderr:
            raise RuntimeError(f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        refused += 1
    return len(COMMANDS), refused


def main() -> int:
    """Build, look, install, use."""
    parser = argparse.ArgumentParser(description="Build the wheel and use it in an empty environment.")
    parser.add_argument("--out", type=Path, required=True, help="folder for found.json")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch))
        names, foreign = contents(wheel)
        answered, refused = work(wheel, Path(scratch))
        size = wheel.stat().st_size
    found = {"files": len(names), "kib": size // 1024, "foreign": foreign}
    found |= {"answered": answered, "refused": refused}
    out.mkdir(parents=True, exist_ok=True)
    (out / "found.json").write_text(json.dumps(found), encoding="utf-8")
    print(json.dumps(found))
    return int(bool(foreign))


if __name__ == "__main__":
    raise SystemExit(main())
