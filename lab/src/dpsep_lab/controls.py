"""Negative controls: the library broken on purpose in twelve ways, and the test that sees each of them.

An audit that finds nothing is worth as much as what it would have found. Every control here takes one part of
the guarantee out of the running library, as careless code would, and runs the test that can see it; the same
test is run on the library as it is, and must find nothing. Which test sees what:

- **canary** (`dpsep.audit.canary`): noise too small or not used, a clip that is wrong or not there;
- **noise law** and **sampling law** (`dpsep.audit.laws`): noise that comes again, batches that are not drawn
  as they are accounted;
- **replay** (`dpsep.audit.replay`): whatever reaches a result, a message or the number of steps beside the
  gate; from the raw table, so that what is done before a fit counts;
- **other coins** (`other_coins`): results that depend on a batch's realised size;
- **mixing** (`dpsep.audit.targets`): a model of one's own in which a record moves what others contribute.

**Privacy.** None: for made-up tables. Each control undoes its damage when it ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.audit.canary import canary_audit
from dpsep.audit.laws import noise_findings, sampling_findings, steps_of
from dpsep.audit.membership import membership_audit
from dpsep.audit.neighbours import neighbours_of
from dpsep.audit.replay import record, replay
from dpsep.audit.targets import mixing
from dpsep.audit.work import Row
from dpsep.estimators import BayesianModel, LinearRegression, ProbitRegression
from dpsep.models.custom import CustomModel, Record
from dpsep.models.frozen import FrozenContribution
from dpsep.privacy import gate, grid, isolation, noise, reader
from dpsep.privacy.release_log import KeptGate
from dpsep.privacy.sampling import PoissonSampling, ShuffledEpochs

Array = NDArray[np.float64]
Evidence = str | None
"""What a test has found; None if nothing."""


class Control(NamedTuple):
    """One way to break the guarantee, and the test that sees it.

    Attributes
    ----------
    name
        What is broken.
    test
        Which test sees it.
    find
        The test; takes a class of estimators and returns what it found.
    broken
        Breaks the library while it is entered, and gives the estimator to be tested.
    estimator
        The estimator as it should be.
    """

    name: str
    test: str
    find: Callable[[type[Any]], Evidence]
    broken: Callable[[], Any]
    estimator: type[Any]


class Outcome(NamedTuple):
    """How a control went.

    Attributes
    ----------
    name, test
        Of the control.
    caught, evidence
        Whether the broken library was found out, and by what.
    alarm
        What the same test found in the library as it is; None, or the test itself is wrong.
    """

    name: str
    test: str
    caught: bool
    evidence: str
    alarm: Evidence


def run_control(name: str) -> Outcome:
    """Run one control and, by the same test, the library as it is.

    Examples
    --------
    >>> found = run_control("standardised outside")
    >>> found.caught, found.alarm
    (True, None)
    """
    control = CONTROLS[name]
    _forget()
    try:
        with control.broken() as estimator:
            evidence = control.find(estimator)
    finally:
        _forget()
    return Outcome(
        name, control.test, evidence is not None, evidence or "nothing found", control.find(control.estimator)
    )


def other_coins(make: Callable[[int], Any], X: Array, y: Array) -> Evidence:
    """Return what depends on coins beside the releases: with other coins and the same releases, nothing may.

    Parameters
    ----------
    make
        Returns the estimator for a seed; its batches are sampled.
    X, y
        A made-up table.
    """
    base = record(lambda: make(1), X, y)
    for seed in range(2, 6):
        again = record(lambda seed=seed: make(seed), X, y, script=base)
        for name, value in base.outcome.items():
            if value.tobytes() != again.outcome[name].tobytes():
                return f"{name} depends on the sizes of batches"
    return None


# The tests.


def _by_canary(estimator: type[Any]) -> Evidence:
    X, y = _table(31)
    model = estimator(epsilon=1.0, delta=1e-2, bounds=(-1, 1), target_bounds=(-1, 1), steps=2)
    found = canary_audit(model, X, y, canaries=32, runs=100)
    return (
        f"epsilon is at least {found.epsilon:.2f}; {found.claimed:.2f} is claimed" if found.caught else None
    )


def _by_noise(estimator: type[Any]) -> Evidence:
    X, y = _table(4)
    model = estimator(epsilon=1.0, delta=1e-2, bounds=(-1, 1), target_bounds=(-1, 1), steps=4)
    return "; ".join(noise_findings(steps_of(model, X, y, runs=20))) or None


def _by_sampling(estimator: type[Any]) -> Evidence:
    X, y = _table(2, 48)
    model = estimator(epsilon=1.0, delta=1e-2, bounds=(-1, 1), target_bounds=(-1, 1), steps=40, sampling=0.25)
    return "; ".join(sampling_findings(steps_of(model, X, y, runs=10))) or None


def _by_coins(estimator: type[Any]) -> Evidence:
    X, y = _table(3, 48)
    box: dict[str, Any] = {"delta": 1e-2, "bounds": (-1, 1), "classes": [-1, 1], "steps": 3, "sampling": 0.25}
    return other_coins(lambda seed: estimator(random_state=seed, **box), X, np.where(y > 0, 1.0, -1.0))


def _by_replay(estimator: type[Any]) -> Evidence:
    X, y = _table(2, 12)
    X[:-1, 1] = 0.0  # the last record alone knows of the second column

    def make() -> Any:
        box: dict[str, Any] = {"delta": 1e-2, "bounds": (-1, 1), "target_bounds": (-1, 1)}
        return estimator(epsilon=4.0, steps=3, random_state=1, **box)

    last = [one for one in neighbours_of(X, y, 600) if one.row == len(X) - 1][:16]
    found = replay(make, X, y, [*neighbours_of(X, y, 8), *last])
    if not found.differences:
        return None
    first = found.differences[0]
    return f"{len(found.differences)} differences, the first of them: {first.what} ({first.neighbour})"


def _by_mixing(estimator: type[Any]) -> Evidence:
    model, X, y = mixing(estimator, 0.5)
    try:
        found = membership_audit(model, X, y, runs=60)
    except isolation.IsolationError:
        return None
    return (
        f"epsilon is at least {found.epsilon:.2f}; {found.claimed:.2f} is claimed" if found.caught else None
    )


# What is broken.


@contextmanager
def _half_the_noise() -> Iterator[type[Any]]:
    noised = gate.Gate._noised

    def halved(self: Any, block: Any, total: Any) -> Array:
        return total + np.rint((noised(self, block, total) - total) / 2)

    with mock.patch.object(gate.Gate, "_noised", halved):
        yield LinearRegression


@contextmanager
def _twice_the_sensitivity() -> Iterator[type[Any]]:
    chunk_sums = reader.chunk_sums

    def doubled(*arguments: Any) -> Any:
        return tuple(2 * part for part in chunk_sums(*arguments))

    with mock.patch.object(reader, "chunk_sums", doubled):
        yield LinearRegression


@contextmanager
def _no_clip() -> Iterator[type[Any]]:
    def as_it_comes(block: Any, rows: Any) -> Any:
        finite = jnp.all(jnp.isfinite(rows), axis=1)
        return jnp.round(jnp.where(finite[:, None], rows, 0.0) * block.scale), finite

    with (
        mock.patch.object(grid, "_to_grid", as_it_comes),
        mock.patch.object(grid, "_passes", lambda block, rows, finite: finite),
        mock.patch.object(reader, "_check_device", return_value=None),
    ):
        yield LinearRegression


@contextmanager
def _noise_not_used() -> Iterator[type[Any]]:
    rounded = noise.rounded_gaussian
    with mock.patch.object(gate, "rounded_gaussian", lambda *arguments: 0 * rounded(*arguments)):
        yield LinearRegression


@contextmanager
def _shuffled_as_poisson() -> Iterator[type[Any]]:
    def dealt(self: PoissonSampling, stream: Any, records: int) -> Any:
        return ShuffledEpochs(max(1, round(self.rate * records)))._sampler(stream, records)

    with mock.patch.object(PoissonSampling, "_sampler", dealt):
        yield LinearRegression


@contextmanager
def _realised_batch() -> Iterator[type[Any]]:
    sums = gate.Reader.sums
    sizes: list[int] = []

    def counted(self: Any, contribution: Any, blocks: Any, public: Any, rows: Any) -> Any:
        sizes.append(max(1, len(rows)))
        return sums(self, contribution, blocks, public, rows)

    with (
        mock.patch.object(gate.Reader, "sums", counted),
        mock.patch.object(KeptGate, "expected_batch", property(lambda self: float(sizes[-1]))),
    ):
        yield ProbitRegression


class _LearnedPrior(LinearRegression):
    """Sets its prior by the data."""

    def fit(self, X: Any, y: Any, **more: Any) -> Any:
        self.prior_scale = float(np.sqrt(np.mean(np.nan_to_num(y, posinf=0, neginf=0).clip(-9, 9) ** 2)))
        return super().fit(X, y, **more)


class _StandardisedOutside(LinearRegression):
    """Standardises the table before the fit, by its own means and deviations."""

    def fit(self, X: Any, y: Any, **more: Any) -> Any:
        sound = np.nan_to_num(X, nan=0, posinf=0, neginf=0).clip(-9, 9)
        return super().fit((X - sound.mean(axis=0)) / (1 + sound.std(axis=0)), y, **more)


class _EarlyStop(LinearRegression):
    """Stops when the private rows are predicted well enough."""

    def fit(self, X: Any, y: Any, **more: Any) -> Any:
        for steps in (1, 2, 3):
            self.steps = steps
            super().fit(X, y, **more)
            sound = np.isfinite(X).all(axis=1) & np.isfinite(y)
            off = np.abs(self.predict(X[sound]) - y[sound])
            if off.max(initial=0.0) < 1.0:
                break
        return self


@contextmanager
def _skipped_update() -> Iterator[type[Any]]:
    sums, released = gate.Reader.sums, KeptGate.release
    definite: list[bool] = []

    def looked(self: Any, contribution: Any, blocks: Any, public: Any, rows: Any) -> Any:
        found = sums(self, contribution, blocks, public, rows)
        for block, total in zip(blocks, found, strict=True):
            if block.kind == "outer":
                matrix = block.assemble(total * block.unit)
                definite.append(bool(np.linalg.eigvalsh(matrix)[0] > 1e-9))
        return found

    def skipped(self: Any, public: Any) -> Any:
        found = released(self, public)
        kept = not definite or definite[-1]
        return found if kept else {name: 0 * value for name, value in found.items()}

    with mock.patch.object(gate.Reader, "sums", looked), mock.patch.object(KeptGate, "release", skipped):
        yield LinearRegression


@contextmanager
def _noise_again() -> Iterator[type[Any]]:
    rounded = noise.rounded_gaussian
    kept: dict[tuple[int, int], Any] = {}

    def again(stream: Any, sd: Any, size: int) -> Any:
        return kept.setdefault((id(stream), size), rounded(stream, sd, size))

    with mock.patch.object(gate, "rounded_gaussian", again):
        yield LinearRegression


@contextmanager
def _refused_by_name() -> Iterator[type[Any]]:
    """The first release's way with models of one's own: a list of known bad operations, and no proof.

    Records went to the program in parts of 128 (`jax.lax.map`), the last of them by a program of its own, and
    a target that cannot be used went to the user's function as it was.
    """

    def mapped(self: FrozenContribution, public: Any, chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        run, leaves = jax.extend.core.jaxpr_as_fun(self.program), jax.tree.leaves(public)
        return jax.lax.map(lambda unit: tuple(run(*leaves, *unit)), tuple(chunk), batch_size=128)

    def searched(self: Any, public: Any, *, sampled: bool) -> None:
        bad = (
            "callback",
            "debug",
            "custom_vmap",
            "ffi_call",
            "pallas",
            "rng_bit_generator",
            "incomplete_beta",
        )
        if self.proved:
            return
        text = str(self.jaxpr)
        if any(name in text for name in bad):
            raise ValueError("the log-likelihood holds what could show or mix records.")
        self.proved = self.slot_free = True

    def as_it_is(self: CustomModel, features: Any, outcome: Any, unit: tuple[Any, ...]) -> Any:
        found = view(self, features, outcome, unit)
        clamped = jnp.where(found.usable, jnp.clip(unit[0], features.low, features.high), 0.0)

        def log_likelihood(z: Any) -> Any:
            return jnp.asarray(
                self.log_likelihood(self.params(z), Record(clamped, unit[1])), z.dtype
            ).reshape(())

        return found._replace(log_likelihood=log_likelihood)

    view = CustomModel.view
    with (
        mock.patch.object(FrozenContribution, "__call__", mapped),
        mock.patch.object(isolation.Program, "prove", searched),
        mock.patch.object(CustomModel, "view", as_it_is),
    ):
        yield BayesianModel


def _instead(estimator: type[Any]) -> Callable[[], Any]:
    @contextmanager
    def entered() -> Iterator[type[Any]]:
        yield estimator

    return entered


CONTROLS: dict[str, Control] = {
    control.name: control
    for control in (
        Control("half the noise", "canary", _by_canary, _half_the_noise, LinearRegression),
        Control("twice the sensitivity", "canary", _by_canary, _twice_the_sensitivity, LinearRegression),
        Control("no clip", "canary", _by_canary, _no_clip, LinearRegression),
        Control("noise computed but not used", "canary", _by_canary, _noise_not_used, LinearRegression),
        Control(
            "shuffled epochs accounted as Poisson",
            "sampling law",
            _by_sampling,
            _shuffled_as_poisson,
            LinearRegression,
        ),
        Control(
            "realised batch size as normaliser", "other coins", _by_coins, _realised_batch, ProbitRegression
        ),
        Control(
            "prior learned from the data", "replay", _by_replay, _instead(_LearnedPrior), LinearRegression
        ),
        Control(
            "standardised outside", "replay", _by_replay, _instead(_StandardisedOutside), LinearRegression
        ),
        Control("data-dependent early stop", "replay", _by_replay, _instead(_EarlyStop), LinearRegression),
        Control(
            "skipped update when not positive definite",
            "replay",
            _by_replay,
            _skipped_update,
            LinearRegression,
        ),
        Control("re-used noise", "noise law", _by_noise, _noise_again, LinearRegression),
        Control(
            "own models refused by name, not by proof", "mixing", _by_mixing, _refused_by_name, BayesianModel
        ),
    )
}
"""All controls by name."""


def work() -> list[Callable[[], Row]]:
    """Return all controls, each as a call that gives its row: what ``dpsep audit --controls`` runs."""
    return [partial(row_of, name) for name in CONTROLS]


def row_of(name: str) -> Row:
    """Run one control and return its row."""
    found = run_control(name)
    return {
        "target": f"control: {name}",
        "attack": found.test,
        "claimed": None,
        "lower_bound": None,
        "confidence": None,
        "caught": found.caught,
        "evidence": found.evidence,
        "false_alarm": found.alarm,
    }


def _table(columns: int, records: int = 16) -> tuple[Array, Array]:
    generator = np.random.default_rng(columns)
    return generator.uniform(-1, 1, (records, columns)), generator.uniform(-1, 1, records)


def _forget() -> None:
    """Compile anew: what was traced before the damage does not know of it, and the reverse."""
    isolation.forget()
