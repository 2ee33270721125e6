"""The one driver of fits. A private one: it charges a recipe, runs its stages, and says what that cost.

Calibrated and described by the model (`dpsep.recipe`), charged, kept and resumed by
`dpsep.privacy.charged_run`. Nothing else in the house knows how to do any of this.

**Privacy.** The result and all values on the way are functions of releases and public numbers; records go to
the stages' gates and nowhere else. The proof is in docs/proofs/index.md. `fit_open` has none.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from dpsep.inference.release_trace import Path
from dpsep.privacy.charged_run import Run, charged_run, fingerprint_of
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.gate import Records
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.open_gate import OpenGate
from dpsep.privacy.permit import Permit
from dpsep.privacy.reader import Readers
from dpsep.recipe import Recipe, Stage

Progress = Callable[[int, int], None]


class Watcher:
    """An ``on_step`` that wants to know what was charged."""

    def begin(self, schedule: Schedule, delta: float, epsilon: float, lost: int) -> None:
        """Take what was charged, and how many releases may have been made and not kept; all public."""
        raise NotImplementedError

    def __call__(self, done: int, total: int) -> None:
        """Take how many releases of the last stage were made, and their total."""
        raise NotImplementedError


class Spend(NamedTuple):
    """What a private fit cost and how, and the path that it took.

    Attributes
    ----------
    permit, schedule, epsilon
        What was charged.
    scaling
        Where the columns' scaling comes from, in words.
    secure
        Whether the result is for release.
    path
        What was released.
    names
        What each part of the schedule releases, in a word.
    unit
        Whose privacy is counted.
    doubt
        Why the budget may be too small; empty where it is not.
    """

    permit: Permit
    schedule: Schedule
    epsilon: float
    scaling: str
    secure: bool
    path: Path
    names: tuple[str, ...]
    unit: str = "record"
    doubt: str = ""


def fit_private(
    recipe: Recipe,
    records: Callable[[], Records],
    *,
    ledger: Ledger | None,
    checkpoint: Checkpoint | None,
    seed: int | None = None,
    on_step: Progress | None = None,
) -> tuple[Any, Spend]:
    """Charge a recipe, then run its stages; nothing is read before the charge is durable.

    Parameters
    ----------
    recipe
        What is fitted, and what it costs.
    records
        Reads the table's arrays.
    ledger, checkpoint, seed
        Who is told, where releases are kept, and a seed for noise that is not for release.
    on_step
        Called after every release of the last stage with the number made and their total; a `Watcher` is
        first told what was charged.
    """
    for stage, part in zip(recipe.stages, recipe.schedule.parts, strict=True):
        if stage.releases not in (None, part.steps):
            wrong = f"not {part.steps}. Nothing was charged."
            raise ValueError(f"private {stage.name} takes {stage.releases} releases, {wrong}")
    last = len(recipe.stages) - 1
    steps = recipe.schedule.parts[-1].steps

    def work(run: Run) -> tuple[Any, Path]:
        path = Path()

        def told(released: dict[str, Any], deviations: dict[str, float], number: int) -> None:
            path.release(released, deviations)
            if on_step is not None:
                on_step(number, steps)

        arrays = run.records()
        values: dict[str, Any] = {}
        for part, stage in enumerate(recipe.stages):
            if part == last and isinstance(on_step, Watcher) and isinstance(run, Run):  # not its rehearsal
                permit = run.permit
                on_step.begin(permit.schedule, permit.delta, permit.epsilon, run.log.lost.total())
            opened = run.stage(part, stage.rows(arrays), told if part == last else None)
            values[stage.name] = stage.run(opened, values, path)
        return values[recipe.stages[last].name], path

    names = tuple(stage.name for stage in recipe.stages)
    (result, path), permit, secure = charged_run(
        work,
        records,
        recipe.shapes,
        recipe.schedule,
        recipe.delta,
        fingerprint_of(recipe.schedule, recipe.delta, recipe.settings),
        stages=names,
        ledger=ledger,
        checkpoint=checkpoint,
        seed=seed,
        unit=recipe.unit,
        purpose=recipe.purpose,
    )
    spent = (permit, permit.schedule, permit.epsilon, recipe.scaling, secure)
    return result, Spend(*spent, path, names, recipe.unit, recipe.doubt)


def fit_open(stages: Sequence[Stage], records: Records) -> Any:
    """Run stages without privacy, on exact sums: what it returns must never be reported beside an epsilon."""
    path = Path(estimates=False)
    readers = Readers()
    values: dict[str, Any] = {}
    for stage in stages:
        arrays = stage.rows(records)
        opened = partial(OpenGate, arrays, readers=readers)
        values[stage.name] = (
            stage.run(opened, values, path) if stage.own is None else stage.own(arrays, values)
        )
    return values[stages[-1].name]
