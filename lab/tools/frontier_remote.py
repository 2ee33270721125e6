"""Run the accuracy benchmark on a machine without a network that has Python, JAX, NumPy and SciPy only.

    python lab/tools/frontier_remote.py prepare build/frontier  # here: wheels and tables into a folder
    python lab/tools/frontier_remote.py run build/frontier OUT -- --who ours --epsilons 0.25,0.5,1,2,4,8

`prepare` fetches the wheels that private fits need (scikit-learn, dp-accounting, randomgen and what they
need) for the other machine's Python, and exports the tables: together less than 40 MB. `run` unpacks the
wheels beside the folder, lets packages that only read tables be absent, and hands the options after ``--``
to ``python -m dpsep_lab.bench.frontier``: the same code, the same accountant and the same secure noise as
anywhere. Its lines come back as one file, ``OUT/fits.jsonl``, written after every quarter of a minute too,
so that little is lost where the run is cut off; a folder of results may hold it as it is.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WHEELS = (
    *(
        "scikit-learn",
        "joblib",
        "cloudpickle",
        "threadpoolctl",
        "narwhals",
        "dp-accounting",
        "attrs",
        "absl-py",
        "dm-tree",
    ),
    *("randomgen", "mpmath", "platformdirs", "rich", "markdown-it-py", "mdurl", "pygments", "opacus"),
)
"""What private fits import, beside JAX, NumPy and SciPy, and what one peer needs beside PyTorch."""
MAY_BE_ABSENT = ("polars", "pyarrow", "pooch", "wrapt")
"""Packages of which nothing is used once tables are arrays."""
EVERY = 15.0
"""Seconds between two writings of the joined lines."""


class _AnyName(type):
    """Class of a name in an absent package: it can be subclassed, called, subscribed and joined in a type."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls


class _Absent(metaclass=_AnyName):
    """Stands for every name in an absent package."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds absent packages after everything else has failed, as modules in which every name exists."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.split(".")[0] not in MAY_BE_ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        made = ModuleType(spec.name)
        made.__getattr__ = lambda name: _missing(spec.name, name)  # type: ignore[method-assign]
        return made

    def exec_module(self, module: ModuleType) -> None:
        return None


def _missing(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"{module} is absent")
    return _Absent


def prepare(folder: Path, python: str, datasets: str) -> None:
    """Fetch wheels for a version of Python, and export tables.

    Parameters
    ----------
    folder
        Where to; the parts are ``wheels`` and ``tables``.
    python
        Version of the other machine's Python.
    datasets
        As ``--datasets`` of the benchmark.
    """
    pins = {line.split("==")[0]: line.split(";")[0].strip() for line in _constraints()}
    wanted = [pins.get(name, name) for name in WHEELS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--dest", str(folder / "wheels"), *wanted]
    subprocess.run(command, check=True)
    export = ["--datasets", datasets, "--export", str(folder / "tables")]
    subprocess.run([sys.executable, "-m", "dpsep_lab.bench.frontier", *export], check=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


def run(folder: Path, out: Path, options: Sequence[str], *, processes: int, gpu: bool) -> int:
    """Unpack what is needed and run the benchmark; return its exit code.

    Parameters
    ----------
    folder
        As `prepare` made it.
    out
        Where the joined lines go; single lines are kept beside the folder, in ``lines``.
    options
        Of the benchmark.
    processes
        How many work at a time.
    gpu
        Let JAX use the GPU; else the processor.
    """
    make_importable(folder)
    os.environ["JAX_PLATFORMS"] = "cuda,cpu" if gpu else "cpu"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    # Worker processes start afresh: they find the packages as this process does, by importing this module.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_site(folder)), str(ROOT / "src"), str(ROOT / "lab" / "src")]
    )
    from dpsep_lab.bench import frontier

    out.mkdir(parents=True, exist_ok=True)
    lines = folder / "lines"
    lines.mkdir(exist_ok=True)
    stop = threading.Event()
    writer = threading.Thread(target=_join_now_and_then, args=(lines, out / "fits.jsonl", stop))
    writer.start()
    try:
        given = ["--tables", str(folder / "tables"), "--out", str(lines), "--processes", str(processes)]
        return frontier.main([*given, *options])
    finally:
        stop.set()
        writer.join()
        _join(lines, out / "fits.jsonl")


def make_importable(folder: Path) -> None:
    """Unpack the wheels, and let packages that only read tables be absent, here and in child processes.

    Parameters
    ----------
    folder
        As `prepare` made it.
    """
    site = _site(folder)
    if not site.is_dir():
        aside = site.with_name(f"{site.name}-{os.getpid()}")
        for wheel in sorted((folder / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(aside)
        # What Python runs at its start, before a child process unpickles its first task.
        (aside / "sitecustomize.py").write_text(
            "import importlib.util\n"
            f"here = {str(Path(__file__).resolve())!r}\n"
            "spec = importlib.util.spec_from_file_location('frontier_remote', here)\n"
            "module = importlib.util.module_from_spec(spec)\n"
            "spec.loader.exec_module(module)\n"
            "module.allow_absent()\n"
        )
        aside.rename(site)
    sys.path[:0] = [str(site), str(ROOT / "src"), str(ROOT / "lab" / "src")]
    allow_absent()


def allow_absent() -> None:
    """Let absent packages be imported as modules in which every name exists."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def _site(folder: Path) -> Path:
    return folder.resolve() / f"site-{sys.version_info.major}.{sys.version_info.minor}"


def _constraints() -> list[str]:
    return [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]


def _join(lines: Path, path: Path) -> None:
    text = "".join(part.read_text("utf-8") for part in sorted(lines.glob("*.json")))
    aside = path.with_suffix(".part")
    aside.write_text(text, "utf-8")
    aside.replace(path)


def _join_now_and_then(lines: Path, path: Path, stop: threading.Event) -> None:
    while not stop.wait(EVERY):
        _join(lines, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("--python", default="3.12", help="version of the other machine's Python")
    first.add_argument("--datasets", default="uci,held-out")
    second = verbs.add_parser("run")
    second.add_argument("folder", type=Path)
    second.add_argument("out", type=Path)
    second.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    second.add_argument("--gpu", action="store_true")
    own = list(sys.argv[1:] if arguments is None else arguments)
    cut = own.index("--") if "--" in own else len(own)
    given = parser.parse_args(own[:cut])
    if given.verb == "prepare":
        prepare(given.folder, given.python, given.datasets)
        return 0
    return run(given.folder, given.out, own[cut + 1 :], processes=given.processes, gpu=given.gpu)


if __name__ == "__main__":
    raise SystemExit(main())
