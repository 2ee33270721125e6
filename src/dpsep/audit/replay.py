r"""Record and replay: a private fit on a table and on its neighbours, with the noise frozen.

The fit is run on a table D with seeded noise, and everything that leaves or enters the gate is written down.
Then each neighbour D' is fitted twice. *Freely*, with the same noise: number of releases, shapes of public
values, batches, chunks, progress calls, warnings, errors, ledger rows and the privacy statement must be those
of D, and the sums of the first release at most the declared sensitivity away. *Replayed*: the gate hands out
the releases of D while it reads D'. Then only the record differs, so that every sum before noise must lie
within the sensitivity, and all that follows from releases (public values of later steps, the posterior) must
be that of D bit for bit. Whatever reaches a result beside the gate shows up as a difference.

**Privacy.** None: this reads sums before noise. It is for made-up tables, in tests. *What it proves:* for the
tables tried, the duties that `dpsep.privacy.gate` leaves to its callers. *What it cannot see:* time, memory,
and neighbours not tried.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.audit.neighbours import Neighbour
from dpsep.audit.taps import tapped
from dpsep.privacy.gate import Gate, Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.ledger import Ledger

Array = NDArray[np.float64]
SLACK = Fraction(1, 10**12)
"""How far the shares of a release, which are doubles, may sum above one."""


class Release(NamedTuple):
    """One release, as seen from inside the gate.

    Attributes
    ----------
    blocks
        Its blocks.
    public
        The public values that went in, leaf by leaf.
    rows, chunks
        Which records were read, and in how many chunks.
    sums
        The integers before noise, block by block.
    released
        What came out.
    """

    blocks: tuple[Block, ...]
    public: tuple[Array, ...]
    rows: Array
    chunks: int
    sums: tuple[NDArray[np.int64], ...]
    released: dict[str, Array]


@dataclass
class Trace:
    """What one fit did: all that may not depend on a record (but for sums), in the order in which it
    happened."""

    releases: list[Release] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    statement: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Array] = field(default_factory=dict)

    def control_flow(self) -> dict[str, Any]:
        """Return what must be the same for neighbours even where released values differ."""
        return {
            "number of releases": len(self.releases),
            # Clips may follow from earlier releases; those of a replayed fit must be the same.
            "blocks": [[_form(block) for block in release.blocks] for release in self.releases],
            "shapes of public values": [
                [(leaf.shape, str(leaf.dtype)) for leaf in release.public] for release in self.releases
            ],
            "records read": [release.rows.tolist() for release in self.releases],
            "chunks": [release.chunks for release in self.releases],
            "shapes of releases": [
                {name: value.shape for name, value in release.released.items()} for release in self.releases
            ],
            "progress": self.steps,
            "warnings and errors": self.messages,
            "ledger rows": self.rows,
            "privacy statement": self.statement,
            "shapes of the result": {name: value.shape for name, value in self.outcome.items()},
        }


class Difference(NamedTuple):
    """Something that a neighbour changed and may not.

    Attributes
    ----------
    neighbour
        Its kind and row.
    what
        What differs.

    Examples
    --------
    >>> Difference("zeroed, row 3", "the posterior's mean").what
    "the posterior's mean"
    """

    neighbour: str
    what: str


class Report(NamedTuple):
    """What a replay found.

    Attributes
    ----------
    neighbours, releases
        How many neighbours were tried, and how many releases each fit made.
    farthest
        Largest distance of two sums before noise, over the distance declared.
    differences
        Everything found; empty if the fit keeps its word.
    trace
        The fit on the table itself.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> from dpsep.audit import neighbours_of
    >>> X, y = np.linspace(-1, 1, 40).reshape(20, 2), np.linspace(-1, 1, 20)
    >>> given = {"delta": 1e-3, "bounds": (-1, 1), "target_bounds": (-1, 1), "steps": 2, "random_state": 0}
    >>> report = replay(lambda: LinearRegression(**given), X, y, neighbours_of(X, y, count=2))
    >>> report.neighbours, report.releases, report.differences
    (2, 11, ())
    """

    neighbours: int
    releases: int
    farthest: float
    differences: tuple[Difference, ...]
    trace: Trace


def replay(
    make_estimator: Callable[[], Any],
    X: Array,
    y: Array,
    neighbours: Iterable[Neighbour],
    *,
    ledger: Ledger | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Report:
    """Fit a table and its neighbours with the same noise, and report every difference; see the module.

    Parameters
    ----------
    make_estimator
        Returns a new private estimator each time, with a `random_state`.
    X, y
        The table.
    neighbours
        Tables that differ in one record, as from `dpsep.audit.neighbours_of`.
    ledger
        Charged by every fit, if given: its rows are compared, too.
    groups
        Group of each row, for fits in which groups are units; neighbours bring their own.

    Examples
    --------
    >>> from dpsep import ProbitRegression
    >>> from dpsep.audit import neighbours_of
    >>> X, y = np.linspace(-1, 1, 40).reshape(20, 2), np.where(np.arange(20) % 3, 1.0, -1.0)
    >>> make = lambda: ProbitRegression(delta=1e-3, bounds=(-1, 1), classes=[-1, 1], steps=2, random_state=0)
    >>> report = replay(make, X, y, neighbours_of(X, y, count=2))
    >>> report.differences, report.farthest <= 1
    ((), True)
    """
    if make_estimator().random_state is None:
        raise ValueError("replay needs frozen noise: give the estimator a random_state.")
    base = record(make_estimator, X, y, ledger, groups=groups)
    expected = base.control_flow()
    differences: list[Difference] = []
    farthest, tried = 0.0, 0
    for neighbour in neighbours:
        tried += 1
        name = f"{neighbour.kind}, row {neighbour.row}"
        table = (make_estimator, neighbour.X, neighbour.y)
        free = record(*table, ledger, groups=neighbour.groups)
        again = record(*table, script=base, groups=neighbour.groups)
        found = [what for what, value in free.control_flow().items() if value != expected[what]]
        found += [
            f"{what} (replayed)"
            for what, value in again.control_flow().items()
            if value != expected[what] and what != "ledger rows"  # one charge a neighbour is enough
        ]
        found += _unequal(base, again)
        pairs = [(0, free), *((step, again) for step in range(len(again.releases)))]
        for step, other in pairs:
            if step < min(len(base.releases), len(other.releases)):
                ratio = distance(base.releases[step], other.releases[step]) / neighbour.hops**2
                farthest = max(farthest, float(ratio) ** 0.5)
                if ratio > 1 + SLACK:
                    found.append(
                        f"sums before noise of release {step}: {float(ratio) ** 0.5:.6g} times as far apart "
                        "as one record may move them"
                    )
        differences += [Difference(name, what) for what in found]
    return Report(tried, len(base.releases), farthest, tuple(differences), base)


def record(
    make_estimator: Callable[[], Any],
    X: Array,
    y: Array,
    ledger: Ledger | None = None,
    script: Trace | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Trace:
    """Fit once and return what happened; with a script, the gate hands out the releases of that trace."""
    trace = Trace()
    estimator = make_estimator()
    before = 0
    if ledger is not None:
        estimator.set_params(ledger=ledger)
        before = ledger.verify()
    with _tapped(trace, script), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            more = {} if groups is None else {"groups": groups}
            estimator.fit(X, y, on_step=lambda done, total: trace.steps.append((done, total)), **more)
        except Exception as error:
            trace.messages.append(f"{type(error).__name__}: {error}")
    trace.messages += [f"{item.category.__name__}: {item.message}" for item in caught]
    if ledger is not None:
        # A row's number, time, run and hashes differ between any two runs.
        trace.rows = [(row.kind, *row[4:10]) for row in ledger.rows()[before:]]
    if getattr(estimator, "privacy_", None) is not None:
        stated = estimator.privacy_.to_dict().items()
        trace.statement = {key: value for key, value in stated if key not in ("run", "ledger")}
        trace.outcome = arrays_of(estimator)
    return trace


def arrays_of(estimator: Any) -> dict[str, Array]:
    """Return everything learned that is made of numbers: fitted attributes and all parts of the posterior."""
    learned = {name: value for name, value in vars(estimator).items() if name.endswith("_")}
    for which in ("posterior", "components"):
        found = learned.pop(f"{which}_", None)
        for name, value in () if found is None else found._asdict().items():
            if isinstance(value, tuple):  # one array a layer, of different shapes
                learned |= {f"{which}.{name}.{place}": part for place, part in enumerate(value)}
            else:
                learned[f"{which}.{name}"] = value
    path = learned.pop("path_", None) or {"blocks": [], "estimates": None}
    learned |= {f"path.{block['name']}": block["size"] for block in path["blocks"]}
    learned["path.estimates"] = None if path["estimates"] is None else path["estimates"]["mean"]
    arrays = {name: np.asarray(value) for name, value in learned.items() if value is not None}
    return {name: array for name, array in arrays.items() if array.dtype.kind in "biuf"}


def distance(one: Release, other: Release) -> Fraction:
    """Return the squared distance of two releases' sums before noise, in units of the clip: exact.

    Block b counts its share of the square of |difference| / clip, an outer block's entries off the diagonal
    twice.
    """
    total = Fraction(0)
    for block, first, second in zip(one.blocks, one.sums, other.sums, strict=True):
        weights = np.rint(1.0 / block.deviations() ** 2).astype(int)
        square = sum(
            int(weight) * (int(a) - int(b)) ** 2 for weight, a, b in zip(weights, first, second, strict=True)
        )
        # The clip in units of the released integers; a histogram's is the square root of its columns.
        clip = block.size if block.kind == "count" else round(block.clip / block.unit) ** 2
        total += Fraction(block.share) * Fraction(square, clip)
    return total


def _form(block: Block) -> tuple[Any, ...]:
    """A block without its clip."""
    return block.name, block.size, block.share, block.kind, block.bins


def _unequal(base: Trace, again: Trace) -> list[str]:
    """What depends on the record beside the sums: with the releases of the base, nothing may."""
    found = []
    for step, (one, other) in enumerate(zip(base.releases, again.releases, strict=False)):
        same = len(one.public) == len(other.public) and all(
            a.tobytes() == b.tobytes() for a, b in zip(one.public, other.public, strict=True)
        )
        if not same:
            found.append(f"public values of release {step}")
        if one.blocks != other.blocks:
            found.append(f"clips of release {step}")
    if any(
        value.tobytes() != again.outcome.get(name, np.empty(0)).tobytes()
        for name, value in base.outcome.items()
    ):
        found.append("the posterior, beside the releases")
    return found


@contextmanager
def _tapped(trace: Trace, script: Trace | None) -> Iterator[None]:
    """Write down what every gate does; hand out the releases of a script instead of new ones."""
    release, sums = Gate.release, Reader.sums
    seen: list[tuple[Any, ...]] = []

    def tapped_sums(
        self: Reader, contribution: Any, blocks: tuple[Block, ...], public: Any, rows: Any
    ) -> list[NDArray[Any]]:
        totals = sums(self, contribution, blocks, public, rows)
        leaves = tuple(np.asarray(leaf).copy() for leaf in jax.tree.leaves(public))
        chunks = -(-len(rows) // self._capacity)
        seen.append((blocks, leaves, np.array(rows), chunks, tuple(total.copy() for total in totals)))
        return totals

    def tapped_release(self: Gate, public: Any) -> dict[str, Array]:
        released = release(self, public)
        step = len(trace.releases)
        if script is not None and step < len(script.releases):
            released = {name: value.copy() for name, value in script.releases[step].released.items()}
        blocks, leaves, rows, chunks, totals = seen.pop()
        kept = {name: value.copy() for name, value in released.items()}
        trace.releases.append(Release(blocks, leaves, rows, chunks, totals, kept))
        return released

    with tapped(sums=tapped_sums, release=tapped_release):
        yield
