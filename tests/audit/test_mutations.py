"""The library, broken on purpose: for each part of the guarantee that is taken out, a named check fails."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from dpsep import fit
from dpsep.inference import weighted
from dpsep.privacy import charged_run, gate, grid, isolation, permit, sampling

from . import checks


class Change(NamedTuple):
    """Text of a function or method to be replaced; `where` else the broken function must be put."""

    owner: Any
    name: str
    old: str
    new: str
    where: tuple[Any, ...] = ()
    more: tuple[tuple[str, str], ...] = ()


NO_CLIP = Change(
    grid,
    "_to_grid",
    "jnp.minimum(block.scale, room / jnp.maximum(norm, jnp.finfo(jnp.float64).tiny))",
    "jnp.full_like(norm, block.scale)",
)
NO_CHECK = Change(grid, "_passes", "<= float(block.norm_units) ** 2", "< jnp.inf")
NOISE = "total + rounded_gaussian(self._stream, units, block.coordinates)"
CHARGE = "permit = authorise(ledger, schedule, delta, unit=unit, purpose=purpose)"

MUTATIONS: dict[str, tuple[Callable[[], None], tuple[Change, ...]]] = {
    "the clip is removed": (checks.check_clip, (NO_CLIP, NO_CHECK)),
    "the scaling to the clip is removed": (checks.check_clip, (NO_CLIP,)),
    "the check in integers is removed": (checks.check_clip, (NO_CHECK,)),
    "rounding has no room": (
        checks.check_room_for_rounding,
        (
            Change(grid, "_to_grid", "block.norm_units - math.sqrt(block.size) / 2", "block.norm_units"),
            NO_CHECK,
        ),
    ),
    "the noise is removed": (checks.check_noise, (Change(gate.Gate, "_noised", NOISE, "total"),)),
    "the noise is drawn and not used": (
        checks.check_noise,
        (Change(gate.Gate, "_noised", NOISE, NOISE.replace("+ ", "+ 0 * ")),),
    ),
    "the noise ignores the share of a block's budget": (
        checks.check_noise,
        (Change(grid.Block, "noise_units", "sigma * self.clip_units", "0.5 * sigma * self.clip_units"),),
    ),
    "batches are cyclic and accounted as Poisson": (
        checks.check_sampling,
        (
            Change(
                sampling._PoissonSampler,
                "_by_coins",
                "return np.concatenate(rows)",
                "self._at = getattr(self, '_at', 0) + 6; "
                "return np.sort(np.arange(self._at, self._at + 6) % self._n_records)",
            ),
        ),
    ),
    "the gate reads everything and accounts for Poisson": (
        checks.check_sampling,
        (Change(gate.Gate, "_drawn", "return sampler.next()", "return np.arange(self.records)"),),
    ),
    "the charge is removed": (
        checks.check_charge,
        (Change(permit, "authorise", "if ledger is not None and", "if False and", (charged_run,)),),
    ),
    "the charge comes after reading": (
        checks.check_charge,
        (
            Change(
                charged_run,
                "charged_run",
                CHARGE,
                CHARGE.replace("ledger", "None", 1),
                (fit,),
                (
                    (
                        'ledger.finish(permit.run, "finished")',
                        "authorise(ledger, schedule, delta, run=permit.run)",
                    ),
                ),
            ),
        ),
    ),
    "releases are not counted": (
        checks.check_count_of_releases,
        (Change(gate.Gate, "release", "self._permit.take(self.mechanism, self._ticket)", "pass"),),
    ),
    "the realised batch is the normaliser": (
        checks.check_updates_see_releases_only,
        (
            Change(
                gate.Gate,
                "release",
                "rows = self._drawn(sampler)",
                "rows = self._rows = self._drawn(sampler)",
            ),
            Change(weighted, "step", "gate.expected_batch", "max(1, len(gate._gate._rows))"),
        ),
    ),
    "bad rows are multiplied by zero": (
        checks.check_bad_rows_count_nowhere,
        (
            Change(grid, "_to_grid", "jnp.where(finite[:, None], rows, 0.0)", "rows * finite[:, None]"),
            Change(grid, "_sum_rows", "jnp.where(usable[:, None], rows, 0.0)", "rows * usable[:, None]"),
        ),
    ),
    "a lost release is not charged again": (
        checks.check_resume,
        (Change(charged_run, "_again", "lost = charged + Counter({died: 1})", "lost = charged"),),
    ),
}
CHECKS = sorted({check for check, _ in MUTATIONS.values()}, key=lambda check: check.__name__)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Compile anew: what was traced before a mutation does not know of it, and the reverse."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    isolation.forget()


def broken(change: Change) -> Any:
    """The function of a change with its text replaced, in the namespace of its module."""
    function = getattr(change.owner, change.name)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in ((change.old, change.new), *change.more):
        assert old in source, f"{change.name} has changed: the mutation does not apply any more"
        source = source.replace(old, new)
    space = vars(sys.modules[function.__module__])
    local: dict[str, Any] = {}
    code = compile(source, f"<broken {change.name}>", "exec")
    exec(code, space, local)
    return local[change.name]


@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_named_check_fails_on_the_library_when(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, changes = MUTATIONS[mutation]
    for change in changes:
        function = broken(change)
        for place in (change.owner, *change.where):
            monkeypatch.setattr(place, change.name, function)
    with pytest.raises((AssertionError, gate.DeviceError)):  # some the gate itself sees first
        check()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_library_passes(check: Callable[[], None]) -> None:
    check()
