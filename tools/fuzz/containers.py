"""Changes with understanding to what holds other things: a ledger's rows, and the members of a checkpoint."""

import contextlib
import io
import json
import random
import sqlite3
import warnings
import zipfile
from typing import Any

import numpy as np
from tools.fuzz.mutate import damage, odd_value
from tools.fuzz.trees import change_json

from dpsep.privacy import ledger_rows

__all__ = ["change_archive", "change_ledger"]


def change_ledger(rng: random.Random, data: bytes) -> bytes:
    """Change a cell of a ledger, past its triggers; often with hashes that fit again."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.deserialize(data)
        kept = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in kept:
            connection.execute(f"DROP TRIGGER {name}")
        fields = ledger_rows.Entry._fields
        rows = [list(row) for row in connection.execute("SELECT * FROM entries ORDER BY number")]
        row = rng.choice(rows)
        place = rng.randrange(len(fields))
        value = _cell(rng, row[place])
        connection.execute(f"UPDATE entries SET {fields[place]} = ? WHERE number = ?", (value, row[0]))
        if rng.random() < 0.8:
            _rehash(connection)
        if rng.random() < 0.1:
            connection.execute(
                rng.choice(("DELETE FROM head", "UPDATE head SET count = 'x'", "DELETE FROM entries"))
            )
        for _, sql in kept:
            connection.execute(sql)
        return connection.serialize()
    finally:
        connection.close()


def _cell(rng: random.Random, old: Any) -> Any:
    kind = rng.randrange(5)
    if kind == 0 and isinstance(old, str):
        return old.encode()
    if kind == 1 and isinstance(old, str):
        return damage(rng, old.encode(), []).decode("utf-8", "replace")
    if kind == 2 and isinstance(old, str) and old[:1] in ("{", "["):
        return change_json(rng, old.encode()).decode()
    if kind == 3:
        return rng.choice(
            (b"\xff\x00", "", "nan", "inf", "-1", "1e309", "0x1", "1/0", "[]", "{}", "null", 2**62)
        )
    value = odd_value(rng)
    if isinstance(value, float | str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return json.dumps(value) if not isinstance(value, int) else str(value % 10**300)


def _rehash(connection: sqlite3.Connection) -> None:
    previous = ledger_rows.GENESIS
    for row in connection.execute("SELECT * FROM entries ORDER BY number").fetchall():
        entry = ledger_rows.Entry(*row)._replace(previous=previous)
        with contextlib.suppress(TypeError, ValueError):
            previous = ledger_rows.entry_hash(entry)
        change = "UPDATE entries SET previous = ?, hash = ? WHERE number = ?"
        connection.execute(change, (entry.previous, previous, entry.number))
    connection.execute("UPDATE head SET hash = ?", (previous,))


def change_archive(rng: random.Random, data: bytes) -> bytes:
    """Write an archive again with one member changed, added, packed, renamed or said to be larger."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    kind = rng.randrange(8)
    packing = zipfile.ZIP_STORED
    if kind <= 2:
        array = np.load(io.BytesIO(members["header.npy"]), allow_pickle=False)
        text = change_json(rng, array.tobytes())
        members["header.npy"] = _npy(np.frombuffer(text, np.uint8))
    elif kind == 3:
        members[name] = damage(rng, members[name], list(members.values()))
    elif kind == 4:
        shape = rng.choice(("(1000000000000,)", "(-1,)", "(3,", "()", "(2, 2)", "[4]", "__import__('os')"))
        kinds = ("'<f8'", "'|O'", "'V9999999'", "[('a', '<f8')]", "'<U2000000'", "'M8[s]'")
        text = f"{{'descr': {rng.choice(kinds)}, 'fortran_order': False, 'shape': {shape}, }}"
        members[name] = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)
    elif kind == 5:
        odd = rng.choice(("../../x.npy", "/x.npy", "array/.npy", "array/a\0b.npy", "array/é.npy", name))
        members[odd] = members[name]
    elif kind == 6:
        packing = zipfile.ZIP_DEFLATED
        if rng.random() < 0.02:
            members["array/large.npy"] = _npy(np.zeros(2**24))
    else:
        members.pop(name)
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", packing) as archive:
        warnings.simplefilter("ignore")
        for member, content in members.items():
            archive.writestr(member, content)
    return out.getvalue()


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()
