"""The tables of a ledger on PostgreSQL: their making, and the look whether they still are what was made.

A ledger is a schema of the database, `dpsep_NAME`, with two tables. `entries` holds the rows of `ledger_rows`
and, beside each, a token that its writer drew: no token can be there twice, so that a charge whose answer was
lost can be looked for and cannot be written again. `head` holds the number of rows and the last hash.

Laws that the server keeps, whoever writes:

- a row enters only with the next number and the last hash as its `previous`; the trigger that checks this
  holds the head's row until the transaction ends, and another moves the head, as the owner of the tables, so
  that a writer needs no right to change anything;
- the head moves by one, to the hash of the row that has its number;
- UPDATE, DELETE and TRUNCATE are refused.

The owner of the schema and the administrators of the server can take all this away. What they took shows when
the tables are looked at; what they put back does not.
"""

import hashlib

from dpsep.privacy.ledger_rows import GENESIS, Entry

FORMAT = 1
MARK = "dpsep ledger, format "
APPENDS = "a ledger only appends"
OUT_OF_TURN = "DP001"
"""The SQLSTATE of a row that is not the next one."""

_CELLS = Entry._fields[1:]
_REFUSE = f"""
BEGIN
  RAISE EXCEPTION '{APPENDS}' USING ERRCODE = 'integrity_constraint_violation';
END
"""
_TAKE_TURN = f"""
DECLARE
  last record;
BEGIN
  SELECT count, hash INTO STRICT last FROM {{schema}}.head FOR UPDATE;
  IF NEW.number IS DISTINCT FROM last.count + 1 OR NEW.previous IS DISTINCT FROM last.hash THEN
    RAISE EXCEPTION '{APPENDS}: this row is not the next one' USING ERRCODE = '{OUT_OF_TURN}';
  END IF;
  RETURN NEW;
END
"""
_COUNT = """
BEGIN
  UPDATE {schema}.head SET count = NEW.number, hash = NEW.hash;
  RETURN NULL;
END
"""
_FORWARD = f"""
BEGIN
  IF NEW.count IS DISTINCT FROM OLD.count + 1 OR NOT EXISTS (
    SELECT FROM {{schema}}.entries WHERE number = NEW.count AND hash = NEW.hash
  ) THEN
    RAISE EXCEPTION '{APPENDS}' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
"""
_BODIES = {"count": _COUNT, "forward": _FORWARD, "refuse": _REFUSE, "take_turn": _TAKE_TURN}
_PATH = "search_path=pg_catalog, pg_temp"

# Name, table, when, and `pg_trigger.tgtype` of that: 1 row, 2 before, 4 insert, 8 delete, 16 update and
# 32 truncate.
_TRIGGERS = (
    ("entries_in_turn", "entries", "BEFORE INSERT", "ROW", "take_turn", 1 + 2 + 4),
    ("entries_counted", "entries", "AFTER INSERT", "ROW", "count", 1 + 4),
    (
        "entries_stay",
        "entries",
        "BEFORE UPDATE OR DELETE OR TRUNCATE",
        "STATEMENT",
        "refuse",
        2 + 8 + 16 + 32,
    ),
    ("head_forward", "head", "BEFORE UPDATE", "ROW", "forward", 1 + 2 + 16),
    ("head_stays", "head", "BEFORE INSERT OR DELETE OR TRUNCATE", "STATEMENT", "refuse", 2 + 4 + 8 + 32),
)

LOOK = """
WITH place AS (SELECT oid, nspowner FROM pg_namespace WHERE nspname = :schema),
held AS (
  SELECT c.*, place.nspowner FROM pg_class c JOIN place ON c.relnamespace = place.oid
  WHERE c.relkind NOT IN ('i', 'I'))
SELECT concat_ws(' ', 'table', relname, relkind, relpersistence, relrowsecurity::text,
  (relowner = nspowner)::text,
  (SELECT count(*) FROM pg_rewrite WHERE ev_class = held.oid),
  (SELECT count(*) FROM pg_inherits WHERE inhparent = held.oid OR inhrelid = held.oid)) FROM held
UNION ALL SELECT
  concat_ws(' ', 'column', relname, attname, format_type(atttypid, atttypmod), attnotnull::text)
  FROM pg_attribute JOIN held ON attrelid = held.oid WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT concat_ws(' ', 'constraint', relname, pg_get_constraintdef(k.oid))
  FROM pg_constraint k JOIN held ON conrelid = held.oid WHERE contype <> 'n'
UNION ALL SELECT concat_ws(' ', 'trigger', tgname, relname, tgtype, tgenabled, proname,
  (tgqual IS NULL AND tgattr::text = '' AND tgnargs = 0)::text, p.pronamespace = held.relnamespace)
  FROM pg_trigger JOIN held ON tgrelid = held.oid JOIN pg_proc p ON tgfoid = p.oid WHERE NOT tgisinternal
UNION ALL SELECT concat_ws(' ', 'function', proname, lanname, prosecdef::text, proconfig::text,
  md5(convert_to(prosrc, 'UTF8')), (proowner = nspowner)::text)
  FROM pg_proc JOIN place ON pronamespace = place.oid JOIN pg_language l ON prolang = l.oid
"""
"""One line for each thing that is in the schema, and each property that the laws hang on."""


def quoted(name: str) -> str:
    """Return a schema's name as SQL writes it; names of ledgers have no quotes in them."""
    return f'"{name}"'


def making(name: str) -> list[str]:
    """Return the statements that make an empty ledger's schema, its head still to be filled in."""
    schema = quoted(name)
    cells = ", ".join(f"{cell} text{'' if cell == 'rdp' else ' NOT NULL'}" for cell in _CELLS)
    made = [
        f"CREATE SCHEMA {schema}",
        f"COMMENT ON SCHEMA {schema} IS '{MARK}{FORMAT}'",
        f"CREATE TABLE {schema}.entries (number bigint PRIMARY KEY, {cells}, token text NOT NULL UNIQUE)",
        f"CREATE TABLE {schema}.head (count bigint NOT NULL, hash text NOT NULL)",
        f"INSERT INTO {schema}.head VALUES (0, '{GENESIS}')",
    ]
    for function, body in _bodies(schema).items():
        made.append(
            f"CREATE FUNCTION {schema}.{function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path = pg_catalog, pg_temp AS $body${body}$body$"
        )
    for trigger, table, when, each, function, _ in _TRIGGERS:
        made.append(
            f"CREATE TRIGGER {trigger} {when} ON {schema}.{table} FOR EACH {each} "
            f"EXECUTE FUNCTION {schema}.{function}()"
        )
    return made


def expected(name: str) -> set[str]:
    """Return what `LOOK` finds in a schema that nobody has changed."""
    lines = {f"table {table} r p false true 0 0" for table in ("entries", "head")}
    lines |= {f"column entries {cell} text {'false' if cell == 'rdp' else 'true'}" for cell in _CELLS}
    lines |= {"column entries number bigint true", "column entries token text true"}
    lines |= {"column head count bigint true", "column head hash text true"}
    lines |= {"constraint entries PRIMARY KEY (number)", "constraint entries UNIQUE (token)"}
    for trigger, table, _, _, function, kind in _TRIGGERS:
        lines.add(f"trigger {trigger} {table} {kind} O {function} true t")
    for function, body in _bodies(quoted(name)).items():
        digest = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
        lines.add(f'function {function} plpgsql true {{"{_PATH}"}} {digest} true')
    return lines


def _bodies(schema: str) -> dict[str, str]:
    return {function: body.replace("{schema}", schema) for function, body in _BODIES.items()}
