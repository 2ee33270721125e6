r"""The cost model: seconds, bytes and memory of a release against records, weights, devices and sites.

A release over N records and d weights on D devices is fitted as

    seconds = t_0 + N (a + b d + c d^2) / D,    a, b, c >= 0,

to measured releases on one device; shares of a round's time and bytes at a federation's server as

    seconds = S (u + v d^2),    bytes = S (question(d) + answer(d, n)),

with S sites of n rows. Questions and answers are made by the federation's own code, so their lengths are
exact; the server's seconds are of real answers checked and added. From there both are carried to sizes that
do not fit one machine. What is carried says so.

**Privacy.** Made data only. The proof is in docs/proofs/federated.md.
"""

import statistics
import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from dpsep.federated import packing, wire
from dpsep.federated.codec import encode
from dpsep.federated.site_sums import answer_bounds
from dpsep.federated.terms import Work
from dpsep_lab.bench.scale import summing_of
from dpsep_lab.bench.table import Row, row

SIZES = ((20_000, 5), (20_000, 20), (20_000, 80), (100_000, 5), (100_000, 20), (100_000, 80), (400_000, 20))
QUICK_SIZES = ((4096, 5), (4096, 20), (16384, 5), (16384, 20))
CHECK = (200_000, 40)
"""Records and features that the model is not fitted to, and is compared with."""
CARRIED = ((10**6, 50, 1), (10**9, 50, 1), (10**9, 50, 64))
"""Records, features and devices that the model is carried to."""
SITES = (3, 100, 10_000)
CHUNK_ROWS = 2048


class Model(NamedTuple):
    """Seconds of a release: a start, and a share a record that grows with the weights."""

    start: float
    record: float
    weight: float
    square: float

    def seconds(self, records: float, features: int, devices: int = 1) -> float:
        """Return the seconds of a release."""
        d = features + 1
        return self.start + records * (self.record + self.weight * d + self.square * d * d) / devices


def growth(quick: bool = False) -> list[Row]:
    """Return the fitted model, how well it forecasts, and what it says of larger sizes."""
    sizes = QUICK_SIZES if quick else SIZES
    measured = {size: seconds_of(*size, repeats=2 if quick else 5) for size in sizes}
    model = fitted(measured)
    rows = [row("growth/release", "model", name, value, "s") for name, value in model._asdict().items()]
    worst = max(abs(model.seconds(*size) / seconds - 1) for size, seconds in measured.items())
    rows.append(row("growth/release", "model", "worst relative error of its own sizes", worst))
    records, features = CHECK if not quick else (8192, 10)
    truth = seconds_of(records, features, repeats=2 if quick else 5)
    rows.append(
        row(
            "growth/release",
            f"{records} x {features}, not fitted",
            "seconds, forecast",
            model.seconds(records, features),
            "s",
            against=("measured", truth),
        )
    )
    for many, wide, devices in CARRIED:
        seconds = model.seconds(many, wide, devices)
        who = f"{many:.0e} x {wide}, {devices} device{'s' * (devices > 1)}"
        rows.append(row("growth/release", who, "seconds, carried", seconds, "s", note="not run"))
        rows.append(row("growth/release", who, "bytes of the table", 8.0 * many * (wide + 1), "B"))
    chunk = 8 * CHUNK_ROWS * 3 * (50 + 1)
    rows.append(row("growth/release", "50 features", "bytes of a chunk and its parts", chunk, "B"))
    return rows + federation(quick)


def federation(quick: bool = False) -> list[Row]:
    """Bytes and the server's seconds of a round, by weights and sites."""
    rows = []
    for features in (11, 49) if quick else (4, 11, 49, 199):
        question, answer, natural = message_sizes(features, 10_000)
        case = f"growth/round, {features + 1} weights"
        sent = row(case, "one site", "bytes both ways", question + answer, "B", against=("natural", natural))
        rows.append(sent | {"note": f"{question} there, {answer} back; natural parameters take {natural}"})
    features, rows_of_site = 49, 10_000
    counts = (3, 100) if quick else SITES
    for sites in counts:
        seconds = server_seconds(sites, features, rows_of_site)
        question, answer, _ = message_sizes(features, rows_of_site)
        case = f"growth/server, {features + 1} weights, {rows_of_site} rows a site"
        rows.append(row(case, f"{sites} sites", "seconds to check and add a round", seconds, "s"))
        rows.append(row(case, f"{sites} sites", "bytes a round", float(sites * (question + answer)), "B"))
    return rows


def seconds_of(records: int, features: int, *, repeats: int) -> float:
    """Median seconds of a release's sum over made records in memory, on one device."""
    rng = np.random.default_rng(records + features)
    table = rng.uniform(-1.0, 1.0, (records, features)), np.sign(rng.uniform(-1.0, 1.0, records))
    way = summing_of(table, records, features)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        way()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def fitted(measured: dict[tuple[int, int], float]) -> Model:
    """Least squares of relative errors, with no negative share.

    Examples
    --------
    >>> truth = Model(0.001, 1e-7, 1e-8, 1e-10)
    >>> sizes = [(n, d) for n in (1000, 10**4, 10**5) for d in (5, 20, 80)]
    >>> found = fitted({size: truth.seconds(*size) for size in sizes})
    >>> bool(np.allclose(found, truth, rtol=1e-6))
    True
    """
    lines = []
    for (records, features), seconds in measured.items():
        d = features + 1
        lines.append(np.array([1.0, records, records * d, records * d * d]) / seconds)
    matrix = np.array(lines)
    scale = np.linalg.norm(matrix, axis=0)
    found, _ = nnls(matrix / scale, np.ones(len(lines)))
    return Model(*(float(value) for value in found / scale))


def message_sizes(features: int, rows: int) -> tuple[int, int, int]:
    """Bytes of a round's question, of its answer, and of the natural parameters of as many weights."""
    work, public = _asked(features, rows)
    constant = wire.names_of((public.features, public.outcome))
    known = frozenset(wire.names_of(public) & _unchanged(public)) | constant
    question = len(wire.ask_round(bytes(16), 0, 3, wire.name_of(encode(work)), public, known))
    bounds = answer_bounds(work.blocks, rows, 0.0)
    answer = len(wire.say_sums(bytes(16), 0, 3, True, b"")) + packing.packed_size(bounds)
    d = features + 1
    return question, answer, 8 * (d + d * (d + 1) // 2)


def server_seconds(sites: int, features: int, rows: int) -> float:
    """Seconds to read, check and add the answers of so many sites, in one process."""
    work, _ = _asked(features, rows)
    bounds = answer_bounds(work.blocks, rows, 0.0)
    middle = [np.where(part.low == 0, part.high // (2 * features + 2), 0) for part in bounds]
    answer = wire.say_sums(bytes(16), 0, 3, True, packing.pack(middle, bounds))
    start = time.perf_counter()
    totals = [np.zeros(len(part.low), np.int64) for part in bounds]
    for _ in range(sites):
        heard: Any = wire.heard_sums(answer, bytes(16), 0, 3, packing.packed_size(bounds))
        found = packing.unpack(heard.packed, bounds)
        if not all(packing.within(block, one, rows) for block, one in zip(work.blocks, found, strict=True)):
            raise AssertionError("an answer made here was refused")
        for total, one in zip(totals, found, strict=True):
            total += one
    return time.perf_counter() - start


def _unchanged(public: Any) -> frozenset[bytes]:
    """Parts of a public value that do not change from round to round: the maps of the columns."""
    other = public._replace(
        half=public.half * 1.5, cavity_mean=public.cavity_mean + 1.0, centre=public.centre + 1.0
    )
    return wire.names_of(public) & wire.names_of(other)


def _asked(features: int, rows: int) -> tuple[Work, Any]:
    """What a round of a logistic regression asks of records, and with which public values."""
    from dpsep_lab.bench.scale import logistic

    blocks, contribution, public = logistic(rows, features)
    rng = np.random.default_rng(features)
    d = features + 1
    public = public._replace(
        half=np.tril(rng.standard_normal((d, d))),
        cavity_mean=rng.standard_normal(d),
        centre=rng.standard_normal(d),
    )
    return Work(0, (0, 1), blocks, contribution), public
