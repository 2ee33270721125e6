"""Valid files of every kind that the program reads, made by the library itself.

Tables hold `SECRET` in a cell and in no name, so that a message that repeats cells shows.
"""

import contextlib
import gzip
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from dpsep.data import Column, Schema
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.ledger import Ledger

__all__ = [
    "HEADER",
    "SCHEMA",
    "SECRET",
    "checkpoints",
    "ledgers",
    "packed_tables",
    "runs",
    "schemas",
    "settings",
    "stored_tables",
    "text_tables",
]

SECRET = "Secretville"
HEADER = b'age,"pay, gross",ward,patient,ill\n'
ROWS = (
    *(b'41,1500.5,North,p1,yes\n52,"2,000",South,p2,no\n', b'NA,,"a ""quoted"" ward",p1,?\n'),
    *(
        f'63,-1e3,"{SECRET}, by the\nsea",p3,yes\n'.encode(),
        b" 7 ,inf,South,,no\n",
        b"1e309,nan,North,p2,yes\n",
    ),
)
SCHEMA = Schema(
    (
        Column("age", "number", (0, 120), missing={"fill": 40}, indicator=True),
        Column("pay, gross", "number"),
        Column("ward", "category", categories=("North", "South"), missing="category"),
        Column("ill", "category", categories=("no", "yes")),
    ),
    target="ill",
    unit="patient",
    groups=("p1", "p2", "p3"),
    rows_per_unit=4,
    na=("", "NA", "?"),
)
"""What is declared of the tables."""


def text_tables() -> dict[str, bytes]:
    """CSV text in several dialects."""
    plain = HEADER + b"".join(ROWS)
    return {
        "quoted.csv": plain,
        "long.csv": HEADER + b"".join(ROWS) * 40,
        "bom.csv": b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"),
        "numbers.csv": b"a;b;y\n" + b"".join(b"%d;%.3f;%d\n" % (i, i / 7, i % 2) for i in range(30)),
        "tabs.csv": b"a\tb\n1\tx\n2\ty\n",
    }


def packed_tables() -> dict[str, bytes]:
    """CSV text packed by gzip, text that grows a thousandfold when it is unpacked, and a stored table."""
    made = {f"{name}.gz": gzip.compress(text, mtime=0) for name, text in text_tables().items()}
    for name, text in {
        "line": b"0" * 2**26,
        "nul": bytes(2**26),
        "quote": b'a,b\n1,"' + b"x" * 2**26,
    }.items():
        made[f"bomb-{name}.gz"] = gzip.compress(text, 9, mtime=0)
    return made | {"table.parquet.gz": gzip.compress(stored_tables()["plain.parquet"], mtime=0)}


def stored_tables() -> dict[str, bytes]:
    """Parquet and Arrow files with types of many kinds."""
    frame = pl.read_csv(io.BytesIO(HEADER + b"".join(ROWS)), infer_schema=False)
    plain = frame.with_columns(pl.col("age").str.strip_chars().cast(pl.Float64, strict=False)).to_arrow()
    wide = pa.table(
        {
            "age": pa.array([1, None, 3], pa.int8()),
            "pay, gross": pa.array([1.5, None, 2.5], pa.float32()),
            "ward": pa.array(["North", "South", SECRET]).dictionary_encode(),
            "ill": pa.array([True, None, False]),
            "when": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
            "list": pa.array([[1], None, [2, 3]]),
            "deep": pa.array([{"a": 1}, None, {"a": 2}]),
            "raw": pa.array([b"x", None, b"yy"]),
            "money": pa.array([None, None, None], pa.decimal128(10, 2)),
            "none": pa.nulls(3),
        }
    )
    made: dict[str, bytes] = {}
    for name, table in {"plain": plain, "wide": wide}.items():
        for packing in ("snappy", "none", "zstd"):
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(table, buffer, compression=packing)
            made[f"{name}.parquet" if packing == "snappy" else f"{name}-{packing}.parquet"] = (
                buffer.getvalue()
            )
        for kind, opened in {"arrow": pa.ipc.new_file, "stream.arrow": pa.ipc.new_stream}.items():
            sink = io.BytesIO()
            with opened(sink, table.schema) as writer:
                writer.write_table(table)
            made[f"{name}.{kind}"] = sink.getvalue()
        sink = io.BytesIO()
        pyarrow.feather.write_feather(table, sink, compression="lz4")
        made[f"{name}-lz4.arrow"] = sink.getvalue()
    return made


def schemas() -> dict[str, bytes]:
    """Schemas as the library writes them, and one as a person would."""
    return {
        "full.toml": SCHEMA.to_toml().encode(),
        "small.toml": Schema((Column("a", "number"), Column("y", "number", (-4, 4))), "y").to_toml().encode(),
        "hand.toml": b"# by hand\nlooked = true\n[[columns]]\nname = 'age'\nkind = 'number'\nmissing = 3\n",
    }


NAMED_BY_SETTINGS = ("table.csv", "schema.toml", "authority.crt", "server.crt", "own.key", "a.pub", "b.pub")
"""Files that `settings` name."""


def settings() -> dict[str, bytes]:
    """Settings of a site and of a server, with TLS and without."""
    site = """name = "a"
table = "table.csv"
schema = "schema.toml"
ledger = "ledger.db"
folder = "state"
modes = ["server", "own"]
most_epsilon = 1.0
own_epsilon = 0.5
own_delta = 1e-6
rows = 100
[link]
superlink = "127.0.0.1:9092"
"""
    fit = """[fit]
model = "logistic"
schema = "schema.toml"
out = "result"
epsilon = 1
delta = 1e-5
mode = "sites"
honest = 2
sampling = 0.1
tries = 3
missing = "drop"
"""
    tls = 'certificate = "server.crt"\nkey = "own.key"\nauthority = "authority.crt"\n'
    address = '[link]\naddress = "localhost:9092"\n'
    made = {
        "site.toml": site + 'authority = "authority.crt"\nkey = "own.key"\npoll = 0.5\n',
        "site-insecure.toml": site + "insecure = true\n",
        "server.toml": address + tls + '[sites]\na = "a.pub"\nb = "b.pub"\n' + fit,
        "server-insecure.toml": address + "insecure = true\n[sites]\na = true\nb = true\n" + fit,
    }
    return {name: text.encode() for name, text in made.items()}


def ledgers(folder: Path) -> dict[str, bytes]:
    """Ledgers of both rules, with charges."""
    from dpsep.privacy.accounting import RDP_ORDERS

    made: dict[str, bytes] = {}
    for rule in ("sum", "rdp"):
        path = folder / f"{rule}.ledger"
        path.unlink(missing_ok=True)
        ledger = Ledger.create(path, epsilon=3.0, delta=1e-5, rule=rule)
        for place in range(3):
            curve = [1e-3 * float(order) for order in RDP_ORDERS] if rule == "rdp" else None
            spent: dict[str, Any] = {"epsilon": 0.25, "delta": 1e-6, "relation": "zero-out", "rdp": curve}
            ledger.charge(f"run-{place}", event={"steps": 20, "purpose": "fit"}, **spent)
        ledger.finish("run-0", "finished")
        made[path.name] = path.read_bytes()
    return made


def checkpoints(folder: Path) -> dict[str, bytes]:
    """Checkpoints of a begun and of an advanced run."""
    meta = {"run": "r", "lost": {}, "settings": "s", "ledger": None, "secure": True}
    made: dict[str, bytes] = {}
    for step in (0, 3):
        checkpoint = Checkpoint(folder / f"step-{step}")
        vectors = {
            f"fit.{place}.{name}": np.arange(4.0) for name in ("mean", "precision") for place in range(step)
        }
        checkpoint.save(step, vectors, meta | {"kept": {"fit": step}})
        made[f"step-{step}.npz"] = checkpoint.path.read_bytes()
    return made


def runs(
    folder: Path, names: tuple[str, ...] = ("linear", "logistic", "poisson", "mixture", "network", "mixed")
):
    """Folders of finished fits; made once and found again where they are."""
    from dpsep.cli.fit import Request, run

    table = folder / "table.csv"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, 60)).round(3)
    labels = np.where(a > 0, "yes", "no")
    columns = {"a": a, "b": b, "y": (a - b).round(3), "ill": labels, "n": rng.poisson(2, 60)}
    pl.DataFrame(columns | {"who": np.arange(60) % 6}).write_csv(table)
    drops = {"linear": ("ill", "n", "who"), "logistic": ("y", "n", "who"), "poisson": ("y", "ill", "who")}
    drops |= {"network": drops["linear"], "mixture": ("ill", "n", "who", "y")}
    targets = {"logistic": "ill", "poisson": "n", "mixture": None}
    declared = folder / "mixed.toml"
    numbers = tuple(Column(name, "number", (-3, 3)) for name in ("a", "y"))
    declared.write_text(Schema(numbers, "y", unit="who", groups=6, rows_per_unit=10).to_toml())
    made: dict[str, Path] = {}
    for name in names:
        made[name] = folder / name
        if made[name].exists():
            continue
        options: dict[str, Any] = {
            "target": targets.get(name, "y"),
            "model": name,
            "drop": drops.get(name, ()),
        }
        if name == "mixed":
            options = {"model": "linear", "schema": declared, "unit": "record"}
        options |= {"components": 2} if name == "mixture" else {}
        options |= {"hidden": "3"} if name == "network" else {}
        request = Request(str(table), made[name], private=False, **options)
        nowhere = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            warnings.simplefilter("ignore")
            run(request)
    return made
