"""Benchmarks: accuracy against peers, cost against scikit-learn, coverage of the intervals.

`run` is what ``dpsep bench`` calls. The cases are ``adult`` and ``linear`` (accuracy on public tables),
``cost`` (time, compilations, memory), ``coverage`` (do intervals hold the truth as often as they say),
``mixture`` (growth, accuracy and coverage of mixtures, on made data), ``network`` (records a second) and
``year`` (a network on a made table of the paper's largest shape), ``noise`` (draws a second), ``plan``
(the planner's forecasts against fits), ``scale`` (sampling, tables on a disk, devices, processes),
``growth`` (the cost model), ``frontier`` (networks against private peers at a given epsilon), ``speed``
(records a second against peers and the machine's floor, whole fits, start) and ``honesty`` (the survey of
coverage and errors on tables that are ordinary and hard).
Tables come from ``$DPSEP_DATA`` or the download cache; rows whose table cannot be had say that they were
skipped.

**Privacy.** Everything here runs on public or made data; nothing it prints is a private release.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsep_lab.bench.honesty.survey import Choice

CASES = (
    *("adult", "linear", "cost", "coverage", "mixture", "network", "year"),
    *("noise", "plan", "scale", "growth", "frontier", "speed", "honesty"),
)
"""The cases, in the order in which they run."""
LONG = ("honesty",)
"""Cases that run only where they are named."""


def run(
    cases: list[str],
    quick: bool,
    json_path: Path | None,
    *,
    show: bool = True,
    on_case: Callable[[int, int], None] | None = None,
    survey: "Choice | None" = None,
) -> int:
    """Run cases (all, if none is named), print their table and write their rows.

    Parameters
    ----------
    cases
        Names out of `CASES`; without names all but those of `LONG` run.
    quick
        One split and few repetitions.
    json_path
        Where to write the rows as one JSON document, after every case; None writes nothing.
    show
        Whether to print the table.
    on_case
        Called before each case with how many are done and how many there are.
    survey
        What of the survey of honesty is run; the whole of it if left out.

    Returns
    -------
    The exit code: 0 done, 1 where a case failed, 2 where a name is unknown.
    """
    import sys

    from dpsep_lab.bench import table

    unknown = [name for name in cases if name not in CASES]
    if unknown:
        print(
            f"there is no benchmark {unknown[0]!r}; the names are {', '.join(CASES)}, or none for all.",
            file=sys.stderr,
        )
        return 2
    rows = table.about(quick)
    failed = False
    chosen = chosen_cases(cases)
    for done, name in enumerate(chosen):
        if on_case is not None:
            on_case(done, len(chosen))
        try:
            rows += _case(name, survey)(quick)
        except Exception as error:  # one broken case must not lose the rows of the others
            failed = True
            rows.append(
                table.row(name, "dpsep bench", "failed", None, note=f"{type(error).__name__}: {error}")
            )
        if json_path is not None:
            table.write(rows, json_path)
    if show:
        table.render(rows)
    return 1 if failed else 0


def chosen_cases(cases: list[str]) -> list[str]:
    """Return the cases that are run, in their order; without names all but the longest.

    Examples
    --------
    >>> chosen_cases(["linear", "adult"])
    ['adult', 'linear']
    """
    return [name for name in CASES if (name in cases if cases else name not in LONG)]


def _case(name: str, survey: "Choice | None") -> Callable[[bool], list[dict[str, Any]]]:
    """Import a case when it is run."""
    if name == "honesty":
        from functools import partial

        from dpsep_lab.bench.honesty.survey import honesty

        return partial(honesty, choice=survey)
    if name == "cost":
        from dpsep_lab.bench import cost

        return cost.cost
    if name == "coverage":
        from dpsep_lab.bench import coverage

        return coverage.cases
    if name == "mixture":
        from dpsep_lab.bench import mixture

        return mixture.mixture
    if name == "network":
        from dpsep_lab.bench import network

        return network.network
    if name == "year":
        from dpsep_lab.bench import year

        return year.year
    if name == "noise":
        from dpsep_lab.bench import noise

        return noise.noise
    if name == "plan":
        from dpsep_lab.bench import planning

        return planning.planning
    if name == "growth":
        from dpsep_lab.bench import growth

        return growth.growth
    if name == "frontier":
        from dpsep_lab.bench import frontier

        return frontier.frontier
    if name == "speed":
        from dpsep_lab.bench import speed

        return speed.speed
    if name == "scale":
        from dpsep_lab.bench import scale

        return scale.scale
    from dpsep_lab.bench import accuracy

    return accuracy.adult if name == "adult" else accuracy.linear
