"""What a federated fit adds to a privacy statement: who took part, who added the noise, who is trusted."""

from typing import Any

from dpsep.federated.session import Session
from dpsep.privacy.shown import up


def federation_of(session: Session) -> dict[str, Any]:
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
