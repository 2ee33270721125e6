r"""What the terms of a run cost a site, and how much noise it adds: public numbers in and out.

With sigma the noise of the whole over the clip, h the fewest honest sites, and T the releases that a site
takes part in:

==========  =====================  ==================================  ==================================
mode        noise the site adds    what the released sum costs          what its answers alone cost
==========  =====================  ==================================  ==================================
"server"    none                   T releases at sigma                  no guarantee: the server is trusted
"sites"     sigma / sqrt(h)        T releases at sigma, delta less      T releases at sigma / sqrt(h)
                                   what rounding adds
"own"       its own                less                                 its own (epsilon, delta)
==========  =====================  ==================================  ==================================

**Privacy.** Releases that a site has no part in are functions of other sites' rows and of earlier releases,
so they cost its records nothing, whatever they are. A public timetable of rounds gives no amplification: a
record's own coin is not hidden, because whether its site took part shows. (Take one record a site and a sum
of ones without noise: the timetable is known, the sum says which records are ones. A sample hidden from the
reader would leave doubt, a timetable leaves none.) In mode ``"sites"`` the ledger is charged for the sum
only where the site declares that its single answers are hidden; else for its answers alone. A run in which
sites work on their own (`local`) has one mechanism and no timetable: what is priced is what they may do.
The proof is in docs/proofs/federated.md.
"""

import math
from dataclasses import replace
from typing import NamedTuple, cast

from dpsep.federated.distributed import LEAST_DEVIATION, MOST_HONEST, extra_delta, less
from dpsep.federated.terms import MODES, PartTerms, Price, Terms
from dpsep.privacy.accounting import calibrate_schedule
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling


class BadTerms(ValueError):
    """Terms that no site can take part in."""


class Own(NamedTuple):
    """A site's own target in mode ``"own"``."""

    epsilon: float
    delta: float


class Deal(NamedTuple):
    """Terms as a site carries them out.

    Attributes
    ----------
    charged
        The schedule that the ledger is charged for.
    price
        What it costs.
    """

    charged: Schedule
    price: Price


def part_terms(mechanism: Mechanism) -> PartTerms:
    """Return a mechanism as it travels."""
    sampling = mechanism.sampling
    if isinstance(sampling, FullBatch):
        return PartTerms("full", 1.0, mechanism.steps, mechanism.sigma)
    if isinstance(sampling, PoissonSampling):
        return PartTerms("poisson", sampling.rate, mechanism.steps, mechanism.sigma)
    raise BadTerms(
        f"{sampling.describe()} cannot be drawn by sites that do not see each other's rows; use "
        "sampling='full' or a rate for Poisson sampling."
    )


def deal_of(terms: Terms, rows: int, *, own: Own | None = None, hidden: bool = False, secure: bool) -> Deal:
    """Return what the terms cost a site with so many rows.

    Parameters
    ----------
    own
        The site's own target in mode ``"own"``; the one asked for by default.
    hidden
        Whether single answers of mode ``"sites"`` are hidden from everybody, and as many sites are honest as
        the terms say.
    secure
        Whether the site's noise is for release.

    Raises
    ------
    BadTerms
        No site can take part in them.
    """
    if terms.mode not in MODES:
        raise BadTerms(f"mode is one of {', '.join(MODES)}, not {terms.mode!r}.")
    if not 0 < terms.delta < 1 or not terms.epsilon > 0:
        raise BadTerms("a run needs epsilon > 0 and delta in (0, 1).")
    if terms.honest > MOST_HONEST:
        raise BadTerms(f"a run may count on at most {MOST_HONEST} honest sites, not {terms.honest}.")
    _check_alone(terms)
    try:
        given = tuple(mechanism_of(part, terms.relation, rows) for part in terms.parts)
        if terms.rounds is not None:
            given = (*given[:-1], replace(given[-1], steps=len(terms.rounds)))
        whole = Schedule(given)
    except ValueError as error:
        raise BadTerms(f"the terms cannot be accounted: {error}") from None
    steps = tuple(part.steps for part in given)
    if terms.mode == "server":
        epsilon = whole.epsilon(terms.delta)
        none = (0.0,) * len(given)
        return Deal(whole, Price(epsilon, terms.delta, epsilon, None, none, steps, secure))
    if terms.mode == "own":
        target = own or Own(terms.epsilon, terms.delta)
        mine = calibrate_schedule(target.epsilon, target.delta, given)
        epsilon = mine.epsilon(target.delta)
        sigmas = tuple(part.sigma for part in mine.parts)
        price = Price(epsilon, target.delta, epsilon, epsilon, sigmas, steps, secure)
        return Deal(mine, price)
    return _shared(terms, whole, steps, hidden=hidden, secure=secure)


def rounds_alone(terms: Terms, price: Price) -> int:
    """Return in how many rounds a site may work on its own: what was priced, over the releases of a round."""
    _check_alone(terms)
    return price.steps[0] // terms.local if terms.local else 0


def carried_out(terms: Terms, price: Price, rows: int) -> tuple[Mechanism, ...]:
    """Return the mechanisms of agreed terms as a site carries them out, without accounting again."""
    parts = [mechanism_of(part, terms.relation, rows) for part in terms.parts]
    return tuple(
        replace(part, steps=steps, sigma=sigma or part.sigma)
        for part, steps, sigma in zip(parts, price.steps, price.sigmas, strict=True)
    )


def sum_delta(terms: Terms, epsilon: float) -> float:
    """Return the delta that is left for the accountant of a sum of rounded noises."""
    releases = sum(part.steps for part in terms.parts)
    extra = extra_delta(terms.honest, LEAST_DEVIATION, terms.coordinates, releases, epsilon)
    return less(terms.delta, extra)


def mechanism_of(part: PartTerms, relation: str, rows: int) -> Mechanism:
    """Return a mechanism from how it travels."""
    sampling: Sampling = FullBatch() if part.sampling == "full" else PoissonSampling(part.rate)
    return Mechanism(sampling, cast(Relation, relation), part.steps, part.sigma, rows)


def _check_alone(terms: Terms) -> None:
    """Raise `BadTerms` where more rounds in which sites work on their own could be counted than priced."""
    if not terms.local:
        return
    if terms.mode != "own":
        raise BadTerms(f"sites work on their own in mode own, not {terms.mode}.")
    if terms.rounds is not None or len(terms.parts) != 1:
        raise BadTerms("where sites work on their own a run has one part and no timetable of rounds.")
    if terms.local > terms.parts[0].steps:
        raise BadTerms("a round in which a site works on its own has more releases than the run.")


def _shared(terms: Terms, whole: Schedule, steps: tuple[int, ...], *, hidden: bool, secure: bool) -> Deal:
    share = math.sqrt(terms.honest)
    alone = Schedule(tuple(replace(part, sigma=part.sigma / share) for part in whole.parts))
    alone_epsilon = alone.epsilon(terms.delta)
    sum_epsilon = _sum_epsilon(terms, whole, alone_epsilon)
    sigmas = tuple(part.sigma for part in alone.parts)
    epsilon = sum_epsilon if hidden else alone_epsilon
    price = Price(epsilon, terms.delta, sum_epsilon, alone_epsilon, sigmas, steps, secure)
    return Deal(whole if hidden else alone, price)


def _sum_epsilon(terms: Terms, whole: Schedule, alone_epsilon: float) -> float:
    """Return the epsilon of the sum at the delta that rounding leaves.

    What rounding adds grows with epsilon, so it may be taken at any that the answer does not exceed: at that
    of the answers alone, or, where this is so large that little of delta would be left, at that of half of
    delta.
    """
    left = _left(terms, alone_epsilon)
    if left >= terms.delta / 2:
        found = whole.epsilon(left)
        if terms.honest == 1 or found <= alone_epsilon:
            return found
    left = _left(terms, whole.epsilon(terms.delta / 2))
    if left < terms.delta / 2:
        raise BadTerms("rounding at the sites adds more than half of delta; use a larger delta.")
    return whole.epsilon(left)


def _left(terms: Terms, epsilon: float) -> float:
    try:
        return sum_delta(terms, epsilon)
    except ValueError:
        return 0.0
