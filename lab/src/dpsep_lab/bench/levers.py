"""What each lever of a private network fit is worth: one change at a time against the committed method.

`LEVERS` names every change. A change is measured at epsilon 1, delta 1e-5, with every record in each release,
on several tables and seeds (`dpsep_lab.bench.levers_data`), by simulated fits that use the committed
functions (`dpsep_lab.bench.levers_fit`). ``lab/tools/ablation.py`` runs them and writes docs/ablation.md.

**Privacy.** For measurement only, on made and public tables; nothing here is a release.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from dpsep.privacy.gaussian import gaussian_mu
from dpsep.theory.networks import (
    MOMENT_SHARE,
    default_hidden,
    default_steps,
    noise_clip,
    noise_share,
    sep_plan,
)
from dpsep_lab.bench.levers_data import Data, Split, data_of, split
from dpsep_lab.bench.levers_fit import Form, Numbers, fits
from dpsep_lab.bench.levers_score import Score, score
from dpsep_lab.bench.levers_steps import correlation_norm

__all__ = ["DEFAULT", "LEVERS", "Lever", "groups", "measure"]

EPSILON, DELTA = 1.0, 1e-5
MOST = 16
"""Most networks that are fitted side by side, for each seed."""


class Lever(NamedTuple):
    """One change.

    Attributes
    ----------
    name, group
        What is shown; a name is unique.
    numbers
        Values of `Numbers` that differ; a name that ends in ``_times`` multiplies the default.
    form
        Values of `Form` that differ; ``hidden_times`` multiplies the default.
    moments
        Share of the budget for moments.
    steps_times
        Multiple of the number of steps.
    blur
        Whether the score accounts for the known noise.
    """

    name: str
    group: str
    numbers: Mapping[str, float] = MappingProxyType({})
    form: Mapping[str, Any] = MappingProxyType({})
    moments: float = MOMENT_SHARE
    steps_times: float = 1.0
    blur: bool = True

    def form_of(self, records: int) -> Form:
        """The program, for a table of so many records."""
        given = dict(self.form)
        hidden = default_hidden(records, private=True)[0] * given.pop("hidden_times", 1.0)
        return Form(max(round(hidden), 2), **given)

    def steps_of(self, records: int) -> int:
        """Releases of the fit."""
        return max(round(default_steps(records) * self.steps_times), 1)

    @property
    def networks(self) -> int:
        """How many networks share the budget."""
        return int(self.numbers.get("networks", 1))

    def numbers_of(self, records: int) -> list[Numbers]:
        """The numbers of each network, for a table of so many records."""
        plan = sep_plan(_Task(records))
        steps = self.steps_of(records)
        values: dict[str, float] = {
            "mu": gaussian_mu(EPSILON, DELTA) * (1.0 - self.moments) ** 0.5,
            "noise_share": noise_share(records),
            "noise_clip": noise_clip(records),
            **{name: getattr(plan, name) for name in ("clip", "damping", "rate", "last", "cap", "tail")},
            "start": plan.start,
        }
        for name, value in self.numbers.items():
            if name.endswith("_times"):
                values[name.removesuffix("_times")] *= value
            else:
                values[name] = value
        values["stretch"] = correlation_norm(values.get("kappa", 0.0), steps)
        return [Numbers(**values | {"member": float(member)}) for member in range(self.networks)]


class _Task(NamedTuple):
    """What a plan asks of a task."""

    records: int
    size: int = 1
    outcome: Literal["regression", "classification"] = "regression"
    steps: int | None = None
    clip: float | None = None


DEFAULT = Lever("committed method", "default")
OTHER = MappingProxyType({"other_steps": True})


def _several(group: str, text: str, key: str, values: Sequence[float]) -> list[Lever]:
    """One number with several values."""
    return [Lever(text.format(f"{value:g}"), group, {key: value}) for value in values]


LEVERS: tuple[Lever, ...] = (
    DEFAULT,
    Lever("clip and noise in the weights' own coordinates (diagonal)", "geometry", {"own": 1.0}, OTHER),
    Lever("no whitening: raw gradients are clipped", "geometry", {"raw": 1.0}, OTHER),
    Lever("each layer clipped by itself", "geometry", {"by_layer": 1.0}),
    *_several("geometry", "damping {}", "damping", (1.0, 2.0, 8.0, 16.0)),
    Lever("bases from standard normal inputs", "geometry", {"released": 0.0}),
    Lever(
        "no released moments: standard normal inputs, no linear start, all budget for the fit",
        "geometry",
        {"released": 0.0, "linear": 0.0},
        moments=0.0,
    ),
    *_several("geometry", "clip {} of a typical record", "clip", (0.25, 0.35, 0.7, 1.0)),
    *(
        Lever(
            f"clip follows the {100 * target:g} % quantile, charged",
            "geometry",
            {"quantile": 1.0, "target": target},
        )
        for target in (0.3, 0.5, 0.7)
    ),
    *_several("steps", "cap times {}", "cap_times", (0.5, 2.0)),
    *_several("steps", "rate {}", "rate", (0.25, 1.0)),
    *_several("steps", "last rate {} of the first", "last", (0.03, 0.3, 1.0)),
    *_several("steps", "rate held for {} of the steps", "hold", (0.2, 0.8)),
    *(Lever(f"momentum {beta:g}", "steps", {"momentum": beta}, OTHER) for beta in (0.5, 0.9)),
    *(
        Lever(f"Kalman gains, forgetting {forget:g}", "steps", {"kalman": 1.0, "forget": forget}, OTHER)
        for forget in (0.05, 0.1, 0.2)
    ),
    *_several("steps", "average over the last {} of the steps", "tail", (0.1, 0.35, 0.5)),
    Lever("last iterate, no averaging", "steps", {"tail": 0.0}),
    *_several("steps", "clip's shrinkage made up for, power {}", "compensation", (0.5, 1.0)),
    *_several("budget", "first half spends {} times the second a step", "early", (0.3, 0.5, 2.0, 3.0)),
    Lever("half as many steps", "budget", steps_times=0.5),
    Lever("twice as many steps", "budget", steps_times=2.0),
    *_several("budget", "noise correlated across steps, kappa {}", "kappa", (0.3, 0.6)),
    *(
        Lever(f"{100 * share:g} % of the budget for moments", "budget", moments=share)
        for share in (0.05, 0.3)
    ),
    *(
        Lever(f"hidden units times {times:g}", "coordinates", form={"hidden_times": times})
        for times in (0.5, 1.5, 2.0)
    ),
    Lever("ReLU units", "coordinates", form={"activation": "relu"}),
    Lever("sigmoid units", "coordinates", form={"activation": "sigmoid"}),
    Lever("no direct inputs, no linear start", "coordinates", form={"direct": False}),
    Lever(
        "random features: first layer fixed, four times the units",
        "coordinates",
        form={"fixed_features": True, "hidden_times": 4.0},
    ),
    Lever("direct inputs without the linear start", "starts", {"linear": 0.0}),
    *_several("starts", "output layer drawn with deviation {}", "start", (0.1, 0.25, 1.0)),
    *_several("starts", "annealed likelihood from {} times the noise", "anneal", (2.0, 4.0)),
    Lever("prior precision not learned", "starts", {"learn_prior": 0.0}),
    Lever("two networks within the budget", "ensembles", {"networks": 2.0}),
    Lever("four networks within the budget", "ensembles", {"networks": 4.0}),
    Lever("posterior not aware of the noise", "posterior", blur=False),
    *_several("posterior", "noise statistic clipped at {}", "noise_clip", (4.0, 8.0, 16.0)),
    Lever(
        "noise statistic of two numbers, clipped at 4", "posterior", {"noise_clip": 4.0, "two_numbers": 1.0}
    ),
)
"""Every change, the committed method first."""


class Measured(NamedTuple):
    """Scores of one lever on one table, one of each a seed."""

    lever: str
    table: str
    rmse: list[float]
    log_likelihood: list[float]


def groups(levers: Sequence[Lever], records: int) -> list[list[Lever]]:
    """Levers that one compiled program can fit side by side, in the order of their first.

    Parameters
    ----------
    levers
        The changes.
    records
        Of the table.
    """
    alike: dict[Any, list[Lever]] = {}
    for lever in levers:
        key = lever.form_of(records), lever.steps_of(records), lever.moments
        alike.setdefault(key, []).append(lever)
    found: list[list[Lever]] = []
    for members in alike.values():
        total = sum(lever.networks for lever in members)
        even = math.ceil(total / math.ceil(total / MOST))
        found.append([])
        for lever in members:
            size = sum(one.networks for one in found[-1])
            if size >= even or size + lever.networks > MOST:
                found.append([])
            found[-1].append(lever)
    return found


def measure(
    table: str, levers: Sequence[Lever], seeds: Sequence[int], folder: Path | None = None
) -> Iterator[Measured]:
    """Fit and score a group of levers (see `groups`) on one table.

    Parameters
    ----------
    table
        Its name.
    levers
        Of one group.
    seeds
        Of tables, starts and noise.
    folder
        Where tables that are not made lie.
    """
    parts = [split(table, seed, folder) for seed in seeds]
    yield from measured(table, levers, parts, seeds)


def measured(
    table: str, levers: Sequence[Lever], parts: Sequence[Split], seeds: Sequence[int]
) -> Iterator[Measured]:
    """Fit and score a group of levers on given tables, one a seed."""
    records, first = len(parts[0].y), levers[0]
    mu = gaussian_mu(EPSILON, DELTA) * first.moments**0.5
    data = [data_of(part, mu, seed) for part, seed in zip(parts, seeds, strict=True)]
    stacked = Data(*(np.stack([np.asarray(one) for one in column]) for column in zip(*data, strict=True)))
    every = [lever.numbers_of(records) for lever in levers]
    rows = [numbers for members in every for numbers in members]
    # Groups of one program are of nearly the same size: made alike, they are compiled once.
    padded = rows + [rows[-1]] * (MOST - len(rows) if len(rows) > MOST // 2 else 0)
    numbers = Numbers(*(np.asarray(column, float) for column in zip(*padded, strict=True)))
    form, steps = first.form_of(records), first.steps_of(records)
    states = jax.device_get(fits(form, numbers, stacked, np.asarray(seeds), steps))
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        place = 0
        for lever, members in zip(levers, every, strict=True):
            scores: list[Score] = []
            for number, seed in enumerate(seeds):
                own = [
                    jax.tree.map(lambda part, at=(place + member, number): part[at], states)
                    for member in range(len(members))
                ]
                test = parts[number].X_test, parts[number].y_test
                scores.append(score(form, members, data[number], test, own, seed, steps))
            place += len(members)
            chosen = [s.log_likelihood if lever.blur else s.without_blur for s in scores]
            yield Measured(lever.name, table, [s.rmse for s in scores], chosen)
