"""Run the survey of honesty on a machine without a network that has Python, JAX, NumPy and SciPy only.

    python lab/tools/bench_remote.py prepare build/remote            # here: wheels into a folder
    python lab/tools/bench_remote.py run build/remote -- bench honesty --jobs 16 --minutes 9 \\
        --json OUT/honesty.json                                      # there

It is done as in `frontier_remote`: `prepare` fetches the wheels for the other machine's Python (less than 40
MB), `run` unpacks them and lets packages that only read tables be absent; after ``--`` stands what would
stand after ``dpsep``. Fits are appended to ``OUT/honesty.jsonl`` as they are done, so that little is lost
where the run is cut off; with that file put there again, a later run goes on from it.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import frontier_remote

WHEELS = (*(name for name in frontier_remote.WHEELS if name != "opacus"), "diffprivlib")
"""What private fits and the survey's peers import, beside JAX, NumPy and SciPy."""


def prepare(folder: Path, python: str) -> None:
    """Fetch wheels for a version of Python.

    Parameters
    ----------
    folder
        Where to; they are put into its part ``wheels``.
    python
        Version of the other machine's Python.
    """
    pins = {line.split("==")[0]: line.split(";")[0].strip() for line in frontier_remote._constraints()}
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--dest", str(folder / "wheels")]
    subprocess.run([*command, *(pins.get(name, name) for name in WHEELS)], check=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


def run(folder: Path, words: Sequence[str]) -> int:
    """Unpack what is needed and run the survey; return its exit code.

    Parameters
    ----------
    folder
        As `prepare` made it.
    words
        ``bench honesty`` and its options.
    """
    if list(words[:2]) != ["bench", "honesty"]:
        print("after -- there must stand: bench honesty, and its options.", file=sys.stderr)
        return 2
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder.resolve() / "compiled"))
    frontier_remote.make_importable(folder)
    # Worker processes start afresh: they find the packages as this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])
    from dpsep_lab.bench.honesty.survey import main

    return main(words[2:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("--python", default="3.12", help="version of the other machine's Python")
    second = verbs.add_parser("run")
    second.add_argument("folder", type=Path)
    own = list(sys.argv[1:] if arguments is None else arguments)
    cut = own.index("--") if "--" in own else len(own)
    given = parser.parse_args(own[:cut])
    if given.verb == "prepare":
        prepare(given.folder, given.python)
        return 0
    return run(given.folder, own[cut + 1 :])


if __name__ == "__main__":
    raise SystemExit(main())
