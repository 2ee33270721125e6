"""What a federated fit says of its privacy: epsilon, who took part, who added the noise, who is trusted.

**Privacy.** The epsilon is what the server's own accounting finds for the noise and the releases of each
site, or a site's price where that is more and plausible: a site that says anything cannot make the statement
say it. The proof is in docs/proofs/federated.md.
"""

import logging
from typing import Any

from dpsep.federated.pricing import carried_out, deal_of
from dpsep.federated.session import Session
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.shown import up

log = logging.getLogger("dpsep.federated")
_LEAST = 1e-2
"""Share of the noise of the terms from which on a site's own noise is accounted here."""
_PLAUSIBLE = 2.0
"""Multiple of the server's own accounting up to which a site's price is believed: accountants differ."""


def guarantee_of(session: Session) -> dict[str, Any]:
    """Return what a statement says of the site that a fit cost most, and of the federation."""
    prices = session.prices.values()
    found: dict[str, Any] = {
        "epsilon": _guaranteed(session),
        "delta": max(price.delta for price in prices),
        "federation": _federation(session),
    }
    if session.settings.mode == "own":
        found["sigma"] = min(price.sigmas[-1] for price in prices)
    return found


def _guaranteed(session: Session) -> float:
    """Return the epsilon that was guaranteed to the site that it cost most, by the server's own accounting.

    A site's price counts where it is more, up to a plausible multiple.
    """
    found: dict[Any, float] = {}
    most = 0.0
    for name, price in session.prices.items():
        said = price.sum_epsilon if session.settings.mode == "sites" else price.epsilon
        key = (price.sigmas, price.steps, price.delta)  # neither of full and Poisson sampling depends on rows
        if key not in found:
            found[key] = _accounted(session, name)
        most = max(most, found[key], said if said <= _PLAUSIBLE * found[key] else 0.0)
    return most


def _accounted(session: Session, name: str) -> float:
    """Return what a site's part costs; its own word where that cannot be accounted, for the run is over."""
    terms, price, rows = session.begun_under(name), session.prices[name], session.hellos[name].rows
    said = price.sum_epsilon if terms.mode == "sites" else price.epsilon
    # Accountants need hours for noise that is nearly none; such a guarantee is the site's own, in mode "own".
    if any(0 < mine < _LEAST * part.sigma for mine, part in zip(price.sigmas, terms.parts, strict=True)):
        return said
    try:
        if terms.mode == "sites":
            return deal_of(terms, rows, secure=price.secure).price.sum_epsilon
        return Schedule(carried_out(terms, price, rows)).epsilon(price.delta)
    except Exception as error:
        log.error("what a run cost site %s could not be accounted: %s", name, type(error).__name__)
        return said


def _federation(session: Session) -> dict[str, Any]:
    """Return mode, sites, their charges and the same in words, as JSON-ready data."""
    settings = session.settings
    sites = {
        name: {
            "rows": session.hellos[name].rows,
            "epsilon": price.epsilon,
            "delta": price.delta,
            "releases": sum(price.steps),
        }
        for name, price in session.prices.items()
    }
    alone = [price.alone_epsilon for price in session.prices.values() if price.alone_epsilon is not None]
    content: dict[str, Any] = {
        "mode": settings.mode,
        "honest": settings.honest,
        "sites": sites,
        "dropped": [list(one) for one in session.dropped],
        "alone_epsilon": max(alone) if alone else None,
    }
    return content | {"text": _text(session, content)}


def _text(session: Session, content: dict[str, Any]) -> str:
    names = ", ".join(session.prices)
    text = f"The rows stayed at {len(session.prices)} sites ({names}). "
    mode = session.settings.mode
    if mode == "server":
        text += (
            "They sent exact sums to the server, which added the noise: the guarantee holds against readers "
            "of the result, and the server is trusted with the sums."
        )
    elif mode == "sites":
        delta = max(site["delta"] for site in content["sites"].values())
        text += (
            f"Each added a share of the noise, enough with {session.settings.honest} honest ones. The "
            "guarantee is that of the sums, and needs that nobody sees the answer of a single site: secure "
            "aggregation, which this library does not supply. Against whoever sees single answers, the "
            f"server included, what holds is ({up(content['alone_epsilon'])}, {up(delta)})."
        )
    else:
        own = "; ".join(
            f"{name} ({up(site['epsilon'])}, {up(site['delta'])})" for name, site in content["sites"].items()
        )
        text += f"Each added all the noise of its own guarantee and trusts nobody: {own}."
    if session.timetable is not None:
        most = max(site["releases"] for site in content["sites"].values())
        text += (
            f" By a public timetable a site took part in at most {most} releases, and epsilon is that of the "
            "site that it cost most; no amplification is claimed for the timetable."
        )
    if session.dropped:
        left = "; ".join(f"{name} ({what})" for name, what in session.dropped)
        text += f" Left out during the run: {left}."
    return text
