"""Row isolation where there is Python, JAX, NumPy and SciPy only: every operation, every fit's programs.

    python lab/tools/speed_gpu.py prepare build/speed          # here: wheels into a folder
    python tools/isolation_gpu.py build/speed --out OUT --platform cuda --processes 8     # there
    python tools/isolation_gpu.py build/speed --out OUT --small                           # anywhere: a few

Each admitted operation and each program of each fit (tests/privacy) is proved, and run with eleven hostile
values in every slot of full and short chunks: of 16 rows, and of as many as a table of 3,000 records has in a
chunk. Written to OUT/isolation-PLATFORM.json: backend, device and version, what was run, which of them moved
another record's row (none, or that backend is not to be trusted), and which gave a record other bits in other
slots (those are refused under sampling there). A backend that passes is entered in `isolation.TESTED`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import frontier_remote

ROOT = Path(__file__).resolve().parents[1]
SIZES = (13, 3000)


def examine(part: int, parts: int, *, small: bool) -> dict[str, Any]:
    """Run every so many of the operations and fits."""
    import jax
    import jaxlib

    from dpsep.privacy.isolation import IsolationError, compiled, forget
    from privacy.isolated import PROGRAMS, rows_of, spread
    from privacy.isolated_fits import FITS, mixed, programs_of

    started = time.monotonic()
    operations, fits = sorted(PROGRAMS), list(FITS)
    if small:
        operations, fits = operations[::20], fits[::6]
    found: dict[str, Any] = {
        "backend": jax.default_backend(),
        "device": str(jax.devices()[0].device_kind),
        "jaxlib": jaxlib.__version__,
        "operations": 0,
        "programs": 0,
        "moved": [],
        "refused": [],
        "slots_matter": [],
    }
    for name in operations[part::parts]:
        with jax.enable_x64(True):
            hit = list(spread(compiled(PROGRAMS[name]), rows_of()))
        found["operations"] += 1
        found["moved"] += [f"{name}: slot {slot}, {value!r}" for slot, value in hit[:2]]
    for name in fits[part::parts]:
        for records in SIZES[:1] if small else SIZES:
            forget()
            for program, public in programs_of(name, records):
                label = f"{name}: {type(program.contribution).__name__} {program.shapes}"
                try:
                    program.prove(public, sampled=False)
                except IsolationError as error:
                    found["refused"].append(f"{label}: {error}")
                    continue
                found["programs"] += 1
                print(f"{time.monotonic() - started:.0f} s: {label}", flush=True)
                hits = list(mixed(program, public, single=records < 20))
                found["moved"] += [f"{label}: {hit}" for hit in hits[:2]]
                if not program.slot_free:
                    found["slots_matter"].append(label)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; run the parts as processes of their own, and join what they found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="as speed_gpu.py prepare made it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--platform", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["JAX_PLATFORMS"] = "cuda,cpu" if given.platform == "cuda" else "cpu"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if (given.folder / "wheels").is_dir():
        frontier_remote.make_importable(given.folder)
    sys.path.insert(0, str(ROOT / "tests"))
    if given.part is not None:
        found = examine(given.part, given.processes, small=given.small)
        (given.folder / f"part-{given.platform}-{given.part}.json").write_text(json.dumps(found))
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    own = [sys.executable, __file__, *(sys.argv[1:] if arguments is None else arguments)]
    running = [subprocess.Popen([*own, "--part", str(part)]) for part in range(given.processes)]
    failed = [part for part, process in enumerate(running) if process.wait() != 0]
    parts = [
        json.loads((given.folder / f"part-{given.platform}-{part}.json").read_text())
        for part in range(given.processes)
        if part not in failed
    ]
    joined = {key: parts[0][key] for key in ("backend", "device", "jaxlib")}
    for key in ("operations", "programs", "moved", "refused", "slots_matter"):
        joined[key] = sum((part[key] for part in parts), parts[0][key] * 0)
    joined |= {"failed_parts": failed, "seconds": round(time.monotonic() - started, 1)}
    (given.out / f"isolation-{given.platform}.json").write_text(json.dumps(joined, indent=1))
    print(json.dumps(joined, indent=1))
    return 1 if failed or joined["moved"] or joined["refused"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
