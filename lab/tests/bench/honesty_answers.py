"""Work of a process of the survey that fits nothing, and imports nothing heavy: a process starts fast."""

from typing import Any

KILLER = "logistic/rare/n10000/none/bounds"
"""The piece of this cell with seed 1 ends its process."""


def answer(pipe: Any, number: int, jobs: int) -> None:
    """Answer pieces of work; estimators named student are absent."""
    while (piece := pipe.recv()) is not None:
        name, seeds = piece
        if name == KILLER and 1 in seeds:
            raise SystemExit(3)
        more = {"absent": "not there"} if name.startswith("student") else {}
        fits = [] if more else [{"seed": seed} for seed in seeds]
        pipe.send({"cell": name, "code": "x", "fits": fits, "failed": {}} | more)
