"""How the time of a record grows: with the number of records, with width, depth, features and batch size.

*Records.* One full release of the default private fit's contributions (clip, grid, exact sum), and one
release of a Poisson sample of about a thousand rows, of tables of 10^3 to 10^7 records. Tables beyond a
million records are made in chunks: the same million rows come again, and no more is held at a time.
*Shapes.* A pass of clipped SEP in batches without a gate (single precision), and a full release of the
default contributions (double precision), as one number changes and the others stay at kin8nm's network.
Seconds are those that the process worked.

**Privacy.** Made data only; sums without noise, of made records, are told to nobody.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from dpsep.privacy.noise import SecureStream
from dpsep.privacy.reader import Reader, capacity_of
from dpsep.privacy.sampling import PoissonSampling
from dpsep_lab.bench import speed_ours
from dpsep_lab.bench.speed_rates import BATCH, HIDDEN, SHAPE
from dpsep_lab.bench.speed_shares import last_chunk
from dpsep_lab.bench.table import Row, row

SAMPLE = 1000
"""Expected rows of a sampled release."""
OPEN, GATE = "batches, no gate", "default release"


class Sizes(NamedTuple):
    """What is measured; the rest stays at kin8nm's shape."""

    records: tuple[int, ...] = tuple(10**power for power in range(3, 8))
    held: int = 10**6
    width: tuple[int, ...] = (10, 50, 200, 800)
    depth: tuple[int, ...] = (1, 2, 3)
    features: tuple[int, ...] = (2, 8, 32, 128)
    batch: tuple[int, ...] = (16, 92, 368, 1472)
    rows: int = SHAPE[0]
    hidden: int = HIDDEN
    repeats: int = 3


QUICK = Sizes(
    records=(1000, 10_000), held=5000, width=(10, 20), depth=(1,), features=(2,), batch=(16,), rows=1000
)


def measure(cores: int, *, quick: bool = False, **changed: Any) -> list[Row]:
    """Return microseconds a record by size."""
    sizes = (QUICK if quick else Sizes())._replace(**{name: _fixed(value) for name, value in changed.items()})
    case = f"speed/growth, {cores} core{'s' * (cores > 1)}"
    rows = by_records(case, sizes)
    for units in sizes.width:
        rows += _by_shape(case, "width", units, sizes, hidden=(units,))
    for layers in sizes.depth:
        rows += _by_shape(case, "depth", layers, sizes, hidden=(sizes.hidden,) * layers)
    for columns in sizes.features:
        rows += _by_shape(case, "features", columns, sizes, features=columns)
    for batch in sizes.batch:
        seconds = _open_seconds(sizes, (sizes.hidden,), SHAPE[1], batch)
        rows.append(_row(case, "batch", batch, OPEN, seconds))
    return rows


def by_records(case: str, sizes: Sizes) -> list[Row]:
    """Return the cost of a record in a full and in a sampled release, by the number of records."""
    held = min(sizes.held, max(sizes.records))
    x, y = speed_ours.table((held, SHAPE[1]))
    contribution, blocks, public = _asked((sizes.hidden,), SHAPE[1])
    rows = []
    for count in sizes.records:
        part = min(count, held)
        reader = Reader((x[:part], y[:part]), capacity_of(blocks))

        def full(reader: Reader = reader, part: int = part, count: int = count) -> None:
            for _ in range(-(-count // part)):
                reader.sums(contribution, blocks, public, range(part))

        sampler = PoissonSampling(min(SAMPLE / count, 1.0)).start(SecureStream(), count)
        small = Reader((x[:part], y[:part]), min(capacity_of(blocks), 8 * (SAMPLE // 7)))

        def sampled(reader: Reader = small, part: int = part, sampler: Any = sampler) -> None:
            drawn = np.asarray(sampler.next()) % part
            reader.sums(contribution, blocks, public, drawn)

        repeats = sizes.repeats if count <= held else 1
        rows.append(_row(case, "records", count, "full release", _median(full, repeats) / count))
        expected = min(SAMPLE, count)
        rows.append(_row(case, "records", count, "sampled release", _median(sampled, 9) / expected))
    return rows


def _by_shape(
    case: str, what: str, size: int, sizes: Sizes, *, hidden: tuple[int, ...] | None = None, features: int = 0
) -> list[Row]:
    """Both ways at one shape."""
    hidden, features = hidden or (sizes.hidden,), features or SHAPE[1]
    contribution, blocks, public = _asked(hidden, features)
    x, y = speed_ours.table((sizes.rows, features))
    reader = Reader((x, y), capacity_of(blocks))
    gate = _median(lambda: reader.sums(contribution, blocks, public, range(len(x))), sizes.repeats) / len(x)
    alone = _open_seconds(sizes, hidden, features, BATCH)
    return [_row(case, what, size, GATE, gate), _row(case, what, size, OPEN, alone)]


def _open_seconds(sizes: Sizes, hidden: tuple[int, ...], features: int, batch: int) -> float:
    """Seconds a record of clipped SEP in batches, without a gate."""
    x, y = speed_ours.table((sizes.rows, features))
    way = speed_ours.batch_way(x, y, hidden=hidden, batch=batch, digits=32)
    return _median(way.action, sizes.repeats) / way.records


def _asked(hidden: tuple[int, ...], features: int) -> tuple[Any, Any, Any]:
    """Contribution, blocks and first public values of the default private fit."""
    from dpsep.estimators import NetworkRegressor

    x, y = speed_ours.table((1024, features))
    model = NetworkRegressor(hidden=hidden, steps=1, sampling="full", public_scaling=((0.0, 1.0), (0.0, 1.0)))
    program, public, _ = last_chunk(lambda: model.fit(x, y))
    return program.contribution, program.blocks, public


def _median(action: Callable[[], Any], repeats: int) -> float:
    """Median seconds after a first call, which compiles."""
    jax.block_until_ready(action())
    times = []
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(action())
        times.append(time.process_time() - start)
    return statistics.median(times)


def _row(case: str, what: str, size: int, who: str, seconds: float) -> Row:
    return row(case, who, what, 1e6 * seconds, "us/record", size=size)


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
