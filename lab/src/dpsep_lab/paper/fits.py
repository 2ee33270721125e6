"""Finished fits of the network tables, kept so that a run that was stopped goes on where it was.

One small file a fit, named by set, split and a digest of everything the fit depends on, the version of the
package included; written under a temporary name and moved in place, so a file is whole or not there. Two
tables that ask for the same fit share it. Files of another version are never read: they stay where they are.

**Privacy**: none. Fits are of public benchmark tables, and their test scores are computed from records.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dpsep
from dpsep.privacy.checkpoint import atomic_write
from dpsep_lab.paper.networks import Case, Refused, Scores, Split

__all__ = ["Job", "Store", "run"]


class Job(NamedTuple):
    """A fit to be done: a case on a split of a set."""

    case: Case
    dataset: str
    split: int


class Store:
    """Scores by job, in memory and, where a folder is named, in files.

    Parameters
    ----------
    folder
        Made where it is missing; None keeps nothing beyond this object.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._found: dict[str, Scores] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, job: Job) -> Scores | None:
        """Return the scores of a finished job, None where it is not finished or its file cannot be read."""
        key = _key(job)
        if key not in self._found and self.folder is not None:
            scores = _read(self.folder / f"{key}.json", _description(job))
            if scores is not None:
                self._found[key] = scores
        return self._found.get(key)

    def put(self, job: Job, scores: Scores) -> None:
        """Keep the scores of a job."""
        key = _key(job)
        self._found[key] = scores
        if self.folder is not None:
            numbers = {name: _plain(value) for name, value in scores._asdict().items()}
            document = _description(job) | {"scores": numbers}
            atomic_write(self.folder / f"{key}.json", json.dumps(document, indent=1, allow_nan=False) + "\n")


def run(
    jobs: Sequence[Job],
    store: Store,
    load: Callable[[str, int], Split],
    on_step: Callable[[int, int], None] | None = None,
) -> list[Scores | str]:
    """Do every job that is not in the store, and return the scores of each, or why there are none.

    Parameters
    ----------
    jobs
        What is asked for; of jobs on the same split in a row, the split is loaded once.
    store
        Where finished ones are and where the others go, each as soon as it is finished.
    load
        From a set's name and a number to a split.
    on_step
        Called with the number of jobs finished and their total.
    """
    split: Split | None = None
    found: list[Scores | str] = []
    for done, job in enumerate(jobs, 1):
        result: Scores | str | None = store.get(job)
        if result is None:
            if split is None or (split.dataset, split.number) != (job.dataset, job.split):
                split = load(job.dataset, job.split)
            try:
                result = job.case.fit(split)
                store.put(job, result)
            except Refused as error:
                result = str(error)
        found.append(result)
        if on_step is not None:
            on_step(done, len(jobs))
    return found


def _description(job: Job) -> dict[str, Any]:
    return {
        "dataset": job.dataset,
        "split": job.split,
        "version": dpsep.__version__,
        "settings": job.case.settings,
    }


def _key(job: Job) -> str:
    text = json.dumps(_description(job), sort_keys=True, allow_nan=False)
    return f"{job.dataset}-{job.split:02d}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _read(path: Path, description: dict[str, Any]) -> Scores | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        numbers = document.pop("scores")
        if document != description:
            return None
        return Scores(
            **{name: math.nan if value is None else float(value) for name, value in numbers.items()}
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # not there, or not whole: the fit is done again


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
