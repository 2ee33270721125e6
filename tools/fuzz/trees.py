"""Damage with understanding: parse JSON, TOML or CSV, change one thing in it, and write it again.

Bytes that are damaged at random seldom get past a parser. These do, and reach what stands behind it.
"""

import copy
import csv
import io
import json
import math
import random
import tomllib
from typing import Any

from tools.fuzz.mutate import WORDS, odd_value

__all__ = ["change_csv", "change_json", "change_toml", "write_toml"]


def change_json(rng: random.Random, data: bytes) -> bytes:
    """Change one or two things in a JSON document."""
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2))):
        tree = _changed(rng, tree)
    return _dump(tree).encode("utf-8", "surrogatepass")


def change_toml(rng: random.Random, data: bytes) -> bytes:
    """Change one or two things in a TOML document."""
    tree: Any = tomllib.loads(data.decode())
    for _ in range(rng.choice((1, 1, 1, 2))):
        tree = _changed(rng, tree)
    if not isinstance(tree, dict):
        tree = {"columns": tree}
    return "".join(f"{_key(key)} = {write_toml(value)}\n" for key, value in tree.items()).encode()


def change_csv(rng: random.Random, data: bytes) -> bytes:
    """Change a cell, a row or a column of a table."""
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"))))[: rng.choice((7, 7, 7, 250))]
    for _ in range(rng.choice((1, 1, 2, 3))):
        row = rng.choice(rows)
        kind = rng.randrange(6)
        if kind == 0 and row:
            row[rng.randrange(len(row))] = str(_short(odd_value(rng)))
        elif kind == 1 and row:
            del row[rng.randrange(len(row))]
        elif kind == 2:
            row.insert(rng.randrange(len(row) + 1), str(_short(odd_value(rng))))
        elif kind == 3:
            rows.insert(rng.randrange(len(rows) + 1), list(row))
        elif kind == 4:
            rng.shuffle(rows)
        else:
            place = rng.randrange(len(rows[0]) + 1)
            value = str(_short(odd_value(rng)))[:200]
            for line in rows:
                line[place : place + rng.randrange(2)] = [value]
    out = io.StringIO()
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    ending = rng.choice(("\n", "\r\n"))
    csv.writer(out, delimiter=rng.choice(",,,;\t"), quoting=quoting, lineterminator=ending).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def write_toml(value: Any) -> str:
    """Write a value on one line; whole numbers beyond 4000 digits in base 16, which has no limit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 12000 else hex(abs(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {write_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(write_toml(part) for part in value) + "]"
    return "1979-05-27" if value is None else str(value)


def _key(key: Any) -> str:
    return json.dumps(str(key), ensure_ascii=False).replace("\x7f", "\\u007f")


def _dump(tree: Any) -> str:
    try:
        return json.dumps(tree, indent=1)
    except ValueError:  # a whole number with more digits than Python writes
        return json.dumps(_writable(tree), indent=1)


def _writable(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _writable(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_writable(value) for value in tree]
    return 10**4000 if isinstance(tree, int) and abs(tree) > 10**4000 else tree


def _short(value: object) -> object:
    if isinstance(value, int) and abs(value) > 1 << 12000:
        return 10**400
    return math.inf if isinstance(value, int) and abs(value) > 10**400 else value


def _changed(rng: random.Random, tree: Any) -> Any:
    """Return a copy of a tree with one node replaced, removed, doubled, wrapped or renamed."""
    root = [copy.deepcopy(tree)]
    nodes: list[tuple[Any, Any]] = []
    _collect(root, nodes)
    parent, place = rng.choice(nodes)
    value = parent[place]
    kind = rng.randrange(8)
    if kind <= 2:
        parent[place] = odd_value(rng)
    elif kind == 3 and parent is not root:
        del parent[place]
    elif kind == 4:
        parent[place] = rng.choice(([value], {rng.choice(WORDS): value}, str(value)[:500]))
    elif kind == 5 and isinstance(parent, dict):
        parent[rng.choice(WORDS)] = parent.pop(place)
    elif kind == 6 and isinstance(value, list):
        value *= rng.choice((0, 2, 3))
    else:
        other, elsewhere = rng.choice(nodes)
        parent[place] = copy.deepcopy(other[elsewhere])
    return root[0]


def _collect(parent: Any, nodes: list[tuple[Any, Any]]) -> None:
    places = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    for place in places:
        nodes.append((parent, place))
        if isinstance(parent[place], dict | list):
            _collect(parent[place], nodes)
