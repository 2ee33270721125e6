r"""What a run does and what it costs: mechanisms and schedules of them.

A `Mechanism` is the sampling scheme, the neighbouring relation, the number of steps, the noise and the
public number of records in one immutable object: the gate draws, clips and adds noise by it and the same
object answers for epsilon. A `Schedule` is several mechanisms on the same records whose parameters are all
fixed before the run.

**Privacy.** *Relations.* ``"zero-out"``: one record is replaced by one that contributes nothing; the number
of records N is public. ``"replace-one"``: one record is replaced by any other. Contributions are clipped to
norm C, so a sum changes by at most C or 2C; ``sigma`` is the noise's standard deviation over C under either
relation. The proof is in docs/proofs/index.md.

*Pairs.* Only these can be accounted, and nothing else can be built:

==========================  =============  ============================================================
sampling                    neighbours     accountant
==========================  =============  ============================================================
Poisson                     zero-out       privacy loss distributions (`dpsep.privacy.pld`)
Poisson                     replace-one    the same, two hops: (2 epsilon, (1 + e^epsilon) delta)
full batch                  both           exact: mu-GDP, mu = sqrt(steps) sensitivity / sigma
fixed size, fresh           replace-one    Rényi curves (Wang, Balle and Kasiviswanathan, 2019)
shuffled epochs             both           exact: one full-batch release a pass, no amplification
==========================  =============  ============================================================

*Shuffled epochs.* The permutations do not depend on the records. Given them (even published), the record in
question is read in exactly one step of each pass; every other release has, given what was released before,
the same law for both neighbours, so a pass is one Gaussian release of sensitivity C (a zeroed record keeps
its slot, so the other slots do not move) or 2C, adaptively composed over passes. An average over
permutations is no worse than the worst one, by joint convexity. A pass begun counts whole.

*Composition.* Steps may depend on what earlier steps released. The parameters of later steps may not, where
a privacy loss distribution is used: it is valid for a fixed schedule only. A ledger over separate runs adds
(epsilon, delta) points or Rényi curves instead.

*Units.* dp-accounting 0.6 doubles the sensitivity of a Gaussian under replace-one inside its loss
distributions and not inside its Rényi calculus. `gaussian_event` is the only place that makes a Gaussian
event, and a test pins both conventions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import dp_accounting as dpa
import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.gaussian import gaussian_delta, gaussian_epsilon
from dpsep.privacy.pld import TOLERANCE, pld_delta, pld_epsilon
from dpsep.privacy.rdp import RDP_ORDERS, event_curve, rdp_to_delta, rdp_to_epsilon
from dpsep.privacy.sampling import FixedSizeSampling, FullBatch, PoissonSampling, Sampling, ShuffledEpochs

Relation = Literal["zero-out", "replace-one"]
"""The neighbouring relations."""
Calculus = Literal["pld", "rdp"]
"""The two calculi of dp-accounting, which measure a Gaussian's noise in different units."""

_DP_ACCOUNTING = {
    "zero-out": dpa.NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": dpa.NeighboringRelation.REPLACE_ONE,
}
_ALLOWED: dict[type[Sampling], tuple[Relation, ...]] = {
    PoissonSampling: ("zero-out", "replace-one"),
    FullBatch: ("zero-out", "replace-one"),
    FixedSizeSampling: ("replace-one",),
    ShuffledEpochs: ("zero-out", "replace-one"),
}


class UnsupportedPair(ValueError):
    """A sampling scheme and a relation, or several mechanisms, that no accountant here answers for."""


def gaussian_event(sigma: float, relation: Relation, calculus: Calculus) -> dpa.GaussianDpEvent:
    """Return the event of one Gaussian release, in the units of one of dp-accounting's calculi.

    Parameters
    ----------
    sigma
        Noise standard deviation over the clip norm C.
    relation
        Its sensitivity is C for ``"zero-out"``, 2C for ``"replace-one"``.
    calculus
        ``"pld"`` wants the noise over C under every relation and doubles the sensitivity itself; ``"rdp"``
        wants the noise over the sensitivity.

    Examples
    --------
    >>> gaussian_event(4.0, "replace-one", "rdp").noise_multiplier
    2.0
    >>> gaussian_event(4.0, "replace-one", "pld").noise_multiplier
    4.0
    """
    return dpa.GaussianDpEvent(sigma if calculus == "pld" else sigma / _sensitivity(relation))


@dataclass(frozen=True)
class Mechanism:
    """So many noisy releases under one sampling scheme, and what they cost.

    **Privacy.** See the module's notes. Each release is a sum of vectors clipped jointly to norm C over the
    rows that ``sampling`` draws, plus Gaussian noise of standard deviation ``sigma`` C in every coordinate.

    Parameters
    ----------
    sampling
        Which rows a step reads.
    relation
        The neighbouring relation.
    steps
        Number of releases.
    sigma
        Noise standard deviation over the clip norm C.
    records
        Public number of records.

    Examples
    --------
    >>> run = Mechanism(FullBatch(), "zero-out", steps=100, sigma=37.3, records=1000)
    >>> round(run.epsilon(1e-5), 2)
    1.0
    >>> Mechanism(FixedSizeSampling(10), "zero-out", steps=1, sigma=1.0, records=1000)
    Traceback (most recent call last):
        ...
    dpsep.privacy.mechanism.UnsupportedPair: fixed-size sampling of 10 ... under replace-one...
    """

    sampling: Sampling
    relation: Relation
    steps: int
    sigma: float
    records: int

    def __post_init__(self) -> None:
        if self.relation not in get_args(Relation):
            raise ValueError(
                f"relation must be one of {', '.join(get_args(Relation))}, not {self.relation!r}."
            )
        allowed = _ALLOWED.get(type(self.sampling), ())
        if self.relation not in allowed:
            raise UnsupportedPair(
                f"{self.sampling.describe()} cannot be accounted under {self.relation}; it can under "
                f"{' and '.join(allowed) or 'no relation'}. Use that, or Poisson sampling, or full batches."
            )
        self.sampling.check(self.records)
        if self.steps < 1 or int(self.steps) != self.steps:
            raise ValueError(f"steps must be a whole number, at least 1, not {self.steps}.")
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma must be positive and finite, not {self.sigma}.")
        # Equal mechanisms are the same one, whatever numbers they were made from.
        for name, kind in (("steps", int), ("sigma", float), ("records", int)):
            object.__setattr__(self, name, kind(getattr(self, name)))

    @property
    def sensitivity(self) -> float:
        """How far one record moves a sum, in units of the clip norm."""
        return _sensitivity(self.relation)

    @property
    def releases(self) -> int:
        """Number of releases that a record can influence: passes for shuffled epochs, steps otherwise."""
        if isinstance(self.sampling, ShuffledEpochs):
            return -(-self.steps // self.sampling.steps_per_pass(self.records))
        return self.steps

    @property
    def accountant(self) -> str:
        """What answers for epsilon, in words."""
        return Schedule((self,)).accountant

    def event(self, calculus: Calculus | None = None) -> dpa.DpEvent:
        """Return what happens, as an event of dp-accounting.

        Parameters
        ----------
        calculus
            For which of dp-accounting's calculi (their units differ); by default the one used for this
            mechanism.
        """
        single = self._single(calculus or ("rdp" if isinstance(self.sampling, FixedSizeSampling) else "pld"))
        return single if self.releases == 1 else dpa.SelfComposedDpEvent(single, self.releases)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the whole run at ``delta``."""
        return Schedule((self,)).epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the delta of the whole run at ``epsilon``."""
        return Schedule((self,)).delta(epsilon)

    def rdp(self, orders: Sequence[float]) -> NDArray[np.float64]:
        """Return the whole run's Rényi curve at these orders; raise UnsupportedPair where there is none."""
        if self.is_gaussian:
            return np.asarray(orders, dtype=np.float64) * (self.mu**2 / 2)
        return event_curve(self._single("rdp"), _DP_ACCOUNTING[self.relation], self.releases, orders)

    def rdp_curve(self) -> NDArray[np.float64]:
        """Return the Rényi curve of the whole run at `RDP_ORDERS`."""
        return self.rdp(RDP_ORDERS)

    @property
    def is_gaussian(self) -> bool:
        """Whether the run is exactly mu-GDP: no amplification by sampling."""
        return isinstance(self.sampling, FullBatch | ShuffledEpochs)

    @property
    def mu(self) -> float:
        """The mu of a run that is mu-GDP."""
        if not self.is_gaussian:
            raise UnsupportedPair(
                f"a run with {self.sampling.describe()} is not mu-GDP; ask for epsilon(delta)."
            )
        return math.sqrt(self.releases) * self.sensitivity / self.sigma

    def _single(self, calculus: Calculus) -> dpa.DpEvent:
        """One release, sampled."""
        gaussian = gaussian_event(self.sigma, self.relation, calculus)
        if isinstance(self.sampling, PoissonSampling):
            if calculus == "rdp" and self.relation == "replace-one":
                raise UnsupportedPair(
                    "Poisson sampling under replace-one has no Rényi curve here; use zero-out, full batches, "
                    "fixed-size sampling, or a ledger that adds (epsilon, delta) points."
                )
            return dpa.PoissonSampledDpEvent(self.sampling.rate, gaussian)
        if isinstance(self.sampling, FixedSizeSampling):
            if calculus == "pld":
                raise UnsupportedPair(
                    "fixed-size sampling has a Rényi curve but no privacy loss distribution here."
                )
            return dpa.SampledWithoutReplacementDpEvent(self.records, self.sampling.size, gaussian)
        return gaussian


@dataclass(frozen=True)
class Schedule:
    """Several mechanisms on the same records, all of their parameters fixed before the first is run.

    **Privacy.** Mu-GDP parts compose exactly, mu = sqrt(sum mu_i^2). With Poisson parts, the mu-GDP parts
    enter the privacy loss distribution as one Gaussian of that mu; under replace-one the whole is composed
    under zero-out and then taken two hops. With fixed-size parts everything is composed by Rényi curves.

    Parameters
    ----------
    parts
        At least one; all under one relation and with one number of records.

    Examples
    --------
    >>> scaling = Mechanism(FullBatch(), "zero-out", steps=1, sigma=20.0, records=1000)
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=50, sigma=30.0, records=1000)
    >>> round(Schedule((scaling, fit)).epsilon(1e-5), 3)
    0.89
    """

    parts: tuple[Mechanism, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a schedule needs at least one mechanism.")
        if len({(part.relation, part.records) for part in self.parts}) > 1:
            raise UnsupportedPair(
                "the parts of a schedule must share a relation and a number of records; account separately."
            )
        kinds = {type(part.sampling) for part in self.parts}
        if {PoissonSampling, FixedSizeSampling} <= kinds:
            raise UnsupportedPair(
                "Poisson and fixed-size sampling in one schedule have no common accountant; use one of them."
            )

    @property
    def relation(self) -> Relation:
        """The relation of all parts."""
        return self.parts[0].relation

    @property
    def accountant(self) -> str:
        """What answers for epsilon, in words."""
        if self._rule == "gaussian":
            return "exact Gaussian composition"
        if self._rule == "rdp":
            return "Rényi curves"
        return "privacy loss distributions" + (", two hops" if self._hops == 2 else "")

    def event(self) -> dpa.DpEvent:
        """Return what happens, as one event of dp-accounting."""
        calculus: Calculus = "rdp" if self._rule == "rdp" else "pld"
        events = [part.event(calculus) for part in self.parts if not part.is_gaussian]
        mu = math.hypot(*(part.mu for part in self.parts if part.is_gaussian))
        if mu > 0:
            events.insert(0, gaussian_event(_sensitivity(self.relation) / mu, self.relation, calculus))
        return events[0] if len(events) == 1 else dpa.ComposedDpEvent(events)

    def epsilon(self, delta: float, tolerance: float = TOLERANCE) -> float:
        """Return the epsilon of the whole schedule at ``delta``.

        Parameters
        ----------
        delta
            In (0, 1).
        tolerance
            How finely loss distributions are computed; a larger value gives a looser bound sooner.
        """
        if self._rule == "gaussian":
            return gaussian_epsilon(math.hypot(*(part.mu for part in self.parts)), delta)
        if self._rule == "rdp":
            return rdp_to_epsilon(self.rdp_curve(), delta)
        return pld_epsilon(self.event(), delta, self._hops, tolerance)

    def delta(self, epsilon: float) -> float:
        """Return the delta of the whole schedule at ``epsilon``."""
        if self._rule == "gaussian":
            return gaussian_delta(epsilon, math.hypot(*(part.mu for part in self.parts)))
        if self._rule == "rdp":
            return rdp_to_delta(self.rdp_curve(), epsilon)
        return pld_delta(self.event(), epsilon, self._hops)

    def rdp_curve(self) -> NDArray[np.float64]:
        """Return the Rényi curve of the whole schedule at `RDP_ORDERS`."""
        return np.sum([part.rdp_curve() for part in self.parts], axis=0)

    @property
    def _rule(self) -> Literal["gaussian", "rdp", "pld"]:
        if all(part.is_gaussian for part in self.parts):
            return "gaussian"
        return "rdp" if any(isinstance(part.sampling, FixedSizeSampling) for part in self.parts) else "pld"

    @property
    def _hops(self) -> Literal[1, 2]:
        return 2 if self.relation == "replace-one" else 1


def _sensitivity(relation: Relation) -> float:
    return 1.0 if relation == "zero-out" else 2.0
