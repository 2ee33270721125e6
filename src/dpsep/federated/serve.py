"""The server's fit: settings in, a folder with the posterior, its privacy statement and a log of events out.

**Privacy.** The folder holds what `dpsep fit` would store: released results, the statement in words and
numbers, declared structure; and the events of the run: which site answered when, never what.
"""

import logging
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dpsep
from dpsep.estimators.store import save
from dpsep.federated.config import ConfigError, ServerSettings, read_server
from dpsep.federated.records import column_names, declared, read_schema
from dpsep.privacy.checkpoint import atomic_write, make_folder
from dpsep.registry import named

__all__ = ["Events", "Served", "federation_of", "fit_over", "model_of", "serve", "serve_alone"]

log = logging.getLogger("dpsep.federated")


class Events:
    """The log of a run: every line is written to a file at once, so that it is there however the run ends.

    Parameters
    ----------
    path
        The file; what it held before is replaced. None keeps the lines in memory only.
    show
        Called with each line.
    """

    def __init__(self, path: Path | None = None, show: Callable[[str], None] = log.info) -> None:
        self.path = path
        self.show = show
        self.lines: list[str] = []
        self.start = time.monotonic()
        if path is not None:
            make_folder(path.parent)
            path.write_text("")

    def __call__(self, line: Any) -> None:
        """Note a line."""
        text = f"{time.monotonic() - self.start:8.2f} s  {line}"
        self.lines.append(text)
        self.show(str(line))
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text + "\n")


class Served(NamedTuple):
    """A fit that was done: the estimator, the exchanges with the sites, and the log."""

    model: Any
    traffic: tuple[Any, ...]
    events: tuple[str, ...]


def serve_alone(settings: ServerSettings, show: Callable[[str], None] = log.info) -> Served:
    """Start a SuperLink, wait for the sites, fit, and write the result."""
    from dpsep.federated.flower_link import open_link

    _check_out(settings)
    with open_link(settings.link, settings.keys()) as grid:
        return fit_over(settings, grid, show)


def serve(config: str | Path, grid: Any) -> Served:
    """Fit over the grid of a run that Flower started, by the settings of a file."""
    settings = read_server(config)
    _check_out(settings)
    return fit_over(settings, grid)


def fit_over(
    settings: ServerSettings,
    grid: Any,
    show: Callable[[str], None] = log.info,
    *,
    start_patience: float | None = None,
) -> Served:
    """Fit over a grid and write the result.

    Parameters
    ----------
    settings
        The server's.
    grid
        Of a run of Flower's.
    show
        Called with each event.
    start_patience
        Seconds to wait until all sites are there; a minute or the settings' patience if left out.
    """
    from dpsep.federated.fitting import fit
    from dpsep.federated.flower_server import FlowerTransport

    wanted = settings.fit
    events = Events(wanted.out.with_name(wanted.out.name + ".events.log"), show)
    patience = max(wanted.patience, 60.0) if start_patience is None else start_patience
    transport = FlowerTransport(
        grid, tuple(settings.sites), keys=settings.keys(), patience=patience, on_event=events
    )
    federation = federation_of(settings, transport, events)
    model = fit(model_of(settings), federation)
    events("the fit is done")
    _store(model, settings, events)
    return Served(model, tuple(transport.traffic), tuple(events.lines))


def federation_of(settings: ServerSettings, transport: Any, events: Callable[[Any], None]) -> Any:
    """Return the federation that the settings describe."""
    from dpsep.federated.federation import Federation

    wanted = settings.fit
    federation = Federation(
        transport,
        mode=wanted.mode,
        honest=wanted.honest,
        patience=wanted.patience,
        tries=wanted.tries,
        least_sites=wanted.least_sites,
        missing=wanted.missing,
        sites_per_round=wanted.sites_per_round,
        on_event=events,
    )
    names = column_names(read_schema(wanted.schema))
    if federation.columns != names:
        raise ConfigError(
            f"the sites' columns are not those of {wanted.schema}; give the server and every site the same "
            "schema. Nothing was charged."
        )
    return federation


def model_of(settings: ServerSettings) -> Any:
    """Return the estimator that the settings describe, not yet fitted."""
    wanted = settings.fit
    schema = read_schema(wanted.schema)
    known = declared(schema)
    options: dict[str, Any] = {"bounds": known["bounds"]}
    entry = named(wanted.model)
    classifier = entry.target == "label"
    if classifier != ("classes" in known) or (classifier and len(known["classes"]) != 2):
        raise ConfigError(
            f"{wanted.schema}: model {wanted.model!r} needs a target that is "
            + ("a category with two values." if classifier else "a number.")
        )
    if classifier:
        options["classes"] = known["classes"]
    if entry.has_target_bounds:
        options["target_bounds"] = known["target_bounds"]
    for name in ("sampling", "steps", "clip", "ledger"):
        value = getattr(wanted, name)
        options |= {} if value is None else {name: value}
    return getattr(dpsep, entry.kind)(
        epsilon=wanted.epsilon,
        delta=wanted.delta,
        relation=wanted.relation,
        random_state=wanted.seed,
        **options,
    )


def _store(model: Any, settings: ServerSettings, events: Events) -> None:
    schema = read_schema(settings.fit.schema)
    extra = {
        "privacy.txt": textwrap.fill(model.privacy_.sentence(), 100) + "\n",
        "schema.toml": schema.to_toml(),
        "summary.csv": model.summary().to_csv(),
        "events.log": "\n".join(events.lines) + "\n",
    }
    save(model, settings.fit.out, extra)
    if events.path is not None:
        events.path.unlink(missing_ok=True)


def _check_out(settings: ServerSettings) -> None:
    """Find out now, not after the fit."""
    if settings.fit.out.exists():
        raise ConfigError(f"{settings.fit.out} exists; name another folder for 'out', or move it away.")
    model_of(settings)
    probe = settings.fit.out.with_name(settings.fit.out.name + ".events.log")
    atomic_write(probe, "")
