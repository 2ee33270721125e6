"""What a server and a site agree on, and what they say of themselves: public descriptions, as they travel.

All are tuples of plain values, so that equal terms have equal bytes. What arrives is held by msgspec to the
types and ranges that its fields declare, outside of which arithmetic fails, and here to what fields say of
each other; whether a site takes part in it is the site's own matter (`dpsep.federated.site_policy`).
"""

import math
import re
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from msgspec import Meta, ValidationError, convert

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

Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Epsilon = Annotated[float, Meta(ge=0, le=MOST_EPSILON)]
Label = bool | int | float | str
Kind = TypeVar("Kind")


class PartTerms(NamedTuple):
    """One mechanism of a run: sampling (``"full"`` or ``"poisson"`` with its rate), releases, noise."""

    sampling: Literal["full", "poisson"]
    rate: Annotated[float, Meta(gt=0, le=1)]
    steps: Annotated[int, Meta(ge=1, le=1 << 20)]
    sigma: Annotated[float, Meta(ge=LEAST_SIGMA, le=MOST_SIGMA)]


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
    honest: Count
    relation: str
    epsilon: float
    delta: float
    parts: Annotated[tuple[PartTerms, ...], Meta(min_length=1, max_length=16)]
    rounds: tuple[Whole, ...] | None
    columns: tuple[str, ...]
    target: str
    classes: tuple[Label, Label] | None
    coordinates: Count
    local: Whole = 0


class Hello(NamedTuple):
    """What a site says of itself: public structure of its table, and what it would take part in."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    rows: Annotated[int, Meta(ge=1, lt=1 << 32)]
    features: Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
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

    epsilon: Epsilon
    delta: float
    sum_epsilon: Epsilon
    alone_epsilon: Epsilon | None
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

    part: Whole
    arrays: tuple[int, ...]
    blocks: Annotated[tuple[Any, ...], Meta(min_length=1, max_length=64)]
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
    what = "the terms of a run are not of their types"
    found = typed(terms, Terms, what)
    for part in found.parts:
        typed(part, PartTerms, what)
    rounds = found.rounds or ()
    if list(rounds) != sorted(set(rounds)) or max(rounds, default=0) >= found.parts[-1].steps:
        raise WireError(f"{what}: look at rounds.")
    return found


def check_hello(hello: Any) -> Hello:
    """Return what a site says of itself, its fields of their types."""
    what = "a site's description of itself is not one"
    found = typed(hello, Hello, what)
    if len(found.columns) not in (0, found.features):
        raise WireError(f"{what}: look at columns.")
    return found


def check_price(price: Any, terms: Terms) -> Price:
    """Return what a run costs a site: of its types, in range, with the noise and releases of the terms."""
    what = "a site's price is none that the terms can have"
    found = typed(price, Price, what)
    last = terms.parts[-1].steps if terms.rounds is None else len(terms.rounds)
    good = {
        "delta": 0 < found.delta < 1 if terms.mode == "own" else found.delta == terms.delta,
        "alone_epsilon": (found.alone_epsilon is None) == (terms.mode == "server"),
        "sigmas": len(found.sigmas) == len(terms.parts)
        and all(map(_is_noise, found.sigmas, terms.parts, (terms,) * len(terms.parts))),
        "steps": found.steps == (*(part.steps for part in terms.parts[:-1]), last),
    }
    if not all(good.values()):
        raise WireError(f"{what}: look at {min(good, key=good.__getitem__)}.")
    return found


def typed(value: Any, kind: type[Kind], what: str) -> Kind:
    """Return a tuple with names whose fields are of the types that its class declares; refuse all others."""
    names: tuple[str, ...] = kind._fields  # pyright: ignore[reportAttributeAccessIssue]
    fields: Any = value if type(value) is kind else ()
    try:
        found: Any = convert(tuple(fields), kind)
    except ValidationError as error:
        # What msgspec says may repeat a text of the message: only where it was, which is last, is told.
        place = re.search(r" - at `\$\[([0-9]+)\][^`]*`$", str(error))
        raise WireError(f"{what}: look at {names[int(place[1])]}." if place else f"{what}.") from None
    if not _same_types(tuple(fields), tuple(found)):  # msgspec takes 1 for 1.0, which has other bytes
        raise WireError(f"{what}.")
    return found


def _same_types(one: Any, other: Any) -> bool:
    same = type(one) is type(other)
    return same and (type(one) is not tuple or all(map(_same_types, one, other)))


def _is_noise(sigma: float, part: PartTerms, terms: Terms) -> bool:
    """Say whether a site's noise is that of its mode: none, its share of the whole, or its own."""
    if terms.mode == "server":
        return sigma == 0
    if not LEAST_SIGMA / 1e3 <= sigma <= MOST_SIGMA:
        return False
    return terms.mode == "own" or math.isclose(sigma, part.sigma / math.sqrt(terms.honest), rel_tol=1e-9)
