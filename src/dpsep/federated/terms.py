"""What a server and a site agree on, and what they say of themselves: public descriptions, as they travel.

All are tuples of plain values, so that equal terms have equal bytes. What arrives is checked here for its
types and for ranges outside of which arithmetic fails; whether a site takes part in it is the site's own
matter (`dpsep.federated.site_policy`).
"""

import math
from typing import Any, Literal, NamedTuple, get_args

from dpsep.federated.codec import WireError

Mode = Literal["server", "sites", "own"]
"""Who adds the noise; `dpsep.federated` says what each guarantees."""
MODES: tuple[Mode, ...] = get_args(Mode)
MOST_EPSILON = 1e6
"""Largest price that is believed; a guarantee is none long before."""
LEAST_SIGMA, MOST_SIGMA = 1e-6, 1e9
"""Range of noise over the clip. Grids and packed sums end well within it; squares of it stay finite."""
MOST_FEATURES = 1 << 20
"""Most columns of a table."""


class PartTerms(NamedTuple):
    """One mechanism of a run: sampling (``"full"`` or ``"poisson"`` with its rate), releases, noise."""

    sampling: str
    rate: float
    steps: int
    sigma: float


class Terms(NamedTuple):
    """What a site is asked to take part in; all of it public.

    Attributes
    ----------
    mode
        Who adds the noise.
    honest
        Fewest honest sites that answer, in mode ``"sites"``; one otherwise.
    relation
        Neighbouring relation.
    epsilon, delta
        What was asked for.
    parts
        The run's mechanisms, with the noise of the whole.
    rounds
        Releases of the last part that this site takes part in; None for all.
    columns, target
        Names of the features, in order, and of the target; empty where the table has none.
    classes
        How labels are coded, the negative one first; None for numbers.
    coordinates
        Most numbers of one release.
    local
        Releases that a site makes on its own for each LOCAL; zero where the server asks for sums.
    """

    mode: str
    honest: int
    relation: str
    epsilon: float
    delta: float
    parts: tuple[PartTerms, ...]
    rounds: tuple[int, ...] | None
    columns: tuple[str, ...]
    target: str
    classes: tuple[Any, ...] | None
    coordinates: int
    local: int = 0


class Hello(NamedTuple):
    """What a site says of itself: public structure of its table, and what it would take part in."""

    name: str
    rows: int
    features: int
    columns: tuple[str, ...]
    target: str
    modes: tuple[str, ...]
    secure: bool


class Price(NamedTuple):
    """What a run costs a site.

    Attributes
    ----------
    epsilon, delta
        What its ledger is charged.
    sum_epsilon
        Of the released sum, at the same delta.
    alone_epsilon
        Of this site's answers on their own; None where they hold no noise.
    sigmas
        Noise that the site adds in each part, over the clip; zero where the server adds it.
    steps
        Releases of each part that the site takes part in.
    secure
        Whether its noise is for release.
    """

    epsilon: float
    delta: float
    sum_epsilon: float
    alone_epsilon: float | None
    sigmas: tuple[float, ...]
    steps: tuple[int, ...]
    secure: bool


class Work(NamedTuple):
    """What is asked of records in the releases of one part.

    Attributes
    ----------
    part
        Number of the mechanism in the terms.
    arrays
        Which arrays of a record are read: 0 the features, 1 the target.
    blocks
        The parts of a release.
    contribution
        What each record adds.
    """

    part: int
    arrays: tuple[int, ...]
    blocks: tuple[Any, ...]
    contribution: Any


class Local(NamedTuple):
    """A round in which a site works on its own; see `dpsep.federated.partitioned`.

    Attributes
    ----------
    number
        Of the round.
    work
        Name of what is asked of records in it.
    prior_mean, prior_precision
        The cavity: all but the site's own factor.
    mean
        Of the whole posterior, where the site starts.
    features, outcome
        Maps of the columns.
    start
        Diagonal of the precision that the site's rows are expected to add.
    warmup
        Releases that are forgotten.
    cap
        Longest step of the mean.
    """

    number: int
    work: bytes
    prior_mean: Any
    prior_precision: Any
    mean: Any
    features: Any
    outcome: Any
    start: Any
    warmup: int
    cap: float


class Factor(NamedTuple):
    """A site's factor, in natural parameters, and the covariance that noise gives to its mean part."""

    eta: Any
    precision: Any
    noise: Any


def check_terms(terms: Any) -> Terms:
    """Return terms whose fields are of their types; the site checks what they ask for."""
    good = (
        isinstance(terms, Terms)
        and isinstance(terms.mode, str)
        and _whole(terms.honest, 1)
        and isinstance(terms.relation, str)
        and all(type(value) is float for value in (terms.epsilon, terms.delta))
        and _texts(terms.columns)
        and isinstance(terms.target, str)
        and _whole(terms.coordinates, 1)
        and _whole(terms.local, 0)
        and isinstance(terms.parts, tuple)
        and 1 <= len(terms.parts) <= 16
        and all(map(_is_part, terms.parts))
        and (terms.classes is None or _labels(terms.classes))
        and (terms.rounds is None or _rounds(terms.rounds, terms.parts[-1].steps))
    )
    if not good:
        raise WireError("the terms of a run are not of their types.")
    return terms


def check_hello(hello: Any) -> Hello:
    """Return what a site says of itself, its fields of their types."""
    good = (
        isinstance(hello, Hello)
        and isinstance(hello.name, str)
        and 0 < len(hello.name) <= 200
        and _whole(hello.rows, 1)
        and hello.rows < 1 << 32
        and _whole(hello.features, 1)
        and hello.features <= MOST_FEATURES
        and _texts(hello.columns)
        and len(hello.columns) in (0, hello.features)
        and isinstance(hello.target, str)
        and _texts(hello.modes)
        and isinstance(hello.secure, bool)
    )
    if not good:
        raise WireError("a site's description of itself is not one.")
    return hello


def check_price(price: Any, terms: Terms) -> Price:
    """Return what a run costs a site: of its types, in range, with the noise and releases of the terms."""
    last = terms.parts[-1].steps if terms.rounds is None else len(terms.rounds)
    good = (
        isinstance(price, Price)
        and all(_between(value, 0.0, MOST_EPSILON) for value in (price.epsilon, price.sum_epsilon))
        and _is_delta(price.delta, terms)
        and isinstance(price.steps, tuple)
        and all(type(value) is int for value in price.steps)
        and price.steps == (*(part.steps for part in terms.parts[:-1]), last)
        and isinstance(price.sigmas, tuple)
        and len(price.sigmas) == len(terms.parts)
        and all(map(_is_noise, price.sigmas, terms.parts, (terms,) * len(terms.parts)))
        and _is_alone(price.alone_epsilon, terms)
        and isinstance(price.secure, bool)
    )
    if not good:
        raise WireError("a site's price is none that the terms can have.")
    return price


def _is_delta(value: Any, terms: Terms) -> bool:
    return type(value) is float and (0 < value < 1 if terms.mode == "own" else value == terms.delta)


def _is_alone(value: Any, terms: Terms) -> bool:
    return value is None if terms.mode == "server" else _between(value, 0.0, MOST_EPSILON)


def _is_noise(sigma: Any, part: PartTerms, terms: Terms) -> bool:
    """Say whether a site's noise is that of its mode: none, its share of the whole, or its own."""
    if terms.mode == "server":
        return type(sigma) is float and sigma == 0
    if not _between(sigma, LEAST_SIGMA / 1e3, MOST_SIGMA):
        return False
    return terms.mode == "own" or math.isclose(sigma, part.sigma / math.sqrt(terms.honest), rel_tol=1e-9)


def _between(value: Any, low: float, high: float) -> bool:
    return type(value) is float and low <= value <= high


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, str) for part in value)


def _labels(value: Any) -> bool:
    kinds = bool | int | float | str
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, kinds) for part in value)


def _rounds(value: Any, steps: int) -> bool:
    whole = isinstance(value, tuple) and all(_whole(part, 0) and part < steps for part in value)
    return whole and list(value) == sorted(set(value))


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, PartTerms)
        and isinstance(part.sampling, str)
        and part.sampling in ("full", "poisson")
        and type(part.rate) is float
        and 0 < part.rate <= 1
        and _whole(part.steps, 1)
        and part.steps <= 1 << 20
        and _between(part.sigma, LEAST_SIGMA, MOST_SIGMA)
    )
