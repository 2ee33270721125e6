"""From a site's settings to the records that it answers from: its table, read by the declared schema.

**Privacy.** What becomes of a row depends on the schema and on that row: a cell that makes no sense makes the
row count for nothing (`dpsep.data.encode`), and so does a damaged line (`dpsep.data.later`). The number of
rows is public; cells are read when a run is charged.
"""

import functools
from typing import Any

import numpy as np

from dpsep.data import Schema, encode, encode_target, encoded_bounds
from dpsep.data.cells import category_codes
from dpsep.data.files import find_source
from dpsep.data.frames import as_frame, unknown_column
from dpsep.data.later import LaterTable, open_later
from dpsep.data.table import settled_format
from dpsep.federated.config import ConfigError, SiteSettings

__all__ = ["column_names", "labels_of", "open_records", "open_site", "read_records", "read_schema"]


def open_site(settings: SiteSettings) -> Any:
    """Return the site that the settings describe."""
    from dpsep.federated.site import Site

    schema = read_schema(settings.schema)
    names = column_names(schema)
    table = functools.cache(lambda: open_records(settings, schema))
    records = functools.cache(lambda: read_records(table(), schema))
    rows = settings.rows if settings.rows is not None else len(table())
    return Site(
        settings.name,
        records,
        settings.ledger,
        settings.folder,
        modes=settings.modes,
        most_epsilon=settings.most_epsilon,
        names=names,
        target=str(schema.target),
        shape=(rows, len(names)),
        own=settings.own,
        hidden=settings.hidden,
    )


def read_schema(path: Any) -> Schema:
    """Read a schema that a federation can use: it must say what is predicted, and protect single rows."""
    schema = Schema.read(path)
    if schema.target is None:
        raise ConfigError(f'{path} has no target; add a line target = "COLUMN": what is to be predicted.')
    if schema.unit is not None:
        raise ConfigError(
            f"{path} declares the unit {schema.unit!r}: models with effects by unit are not fitted in a "
            "federation, which protects single rows. Take 'unit' out if that is what you want."
        )
    return schema


def column_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of the encoded features."""
    empty = {column.name: [] for column in schema.columns}
    return encode(empty, schema)[1]


def open_records(settings: SiteSettings, schema: Schema) -> LaterTable:
    """Open a site's table; its cells are left for later."""
    source = find_source(settings.table)
    table = open_later(source, settled_format(source, settings.format), schema)
    if schema.target not in table.names:
        raise ConfigError(f"{table.label}: {unknown_column(str(schema.target), table.names)}")
    if settings.rows is not None and len(table) != settings.rows:
        raise ConfigError(
            f"{settings.table} has another number of rows than the {settings.rows} that are declared; "
            "correct 'rows' (a run that began with the old number cannot go on)."
        )
    return table


def read_records(table: LaterTable, schema: Schema) -> tuple[Any, Any]:
    """Read a site's features and target."""
    frame = as_frame(table.read(slice(None), table.names))
    return encode(frame, schema)[0], labels_of(frame, schema)


def labels_of(frame: Any, schema: Schema) -> Any:
    """Return the target: numbers, or labels with an empty text for what is missing or undeclared."""
    outcome = schema[str(schema.target)]
    if outcome.categories is None:
        return encode_target(frame, schema)
    return np.array(["", *outcome.categories])[category_codes(frame[outcome.name], outcome) + 1]


def declared(schema: Schema) -> dict[str, Any]:
    """Return what an estimator is told: bounds where all are declared, classes, the target's bounds."""
    low, high = encoded_bounds(schema)
    outcome = schema[str(schema.target)]
    bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
    found: dict[str, Any] = {"bounds": (low.tolist(), high.tolist()) if bounded else None}
    if outcome.categories is not None:
        found["classes"] = list(outcome.categories)
    return found | {"target_bounds": outcome.bounds}
