"""Who reaches a ledger on a server, how it is named, and that a password is shown nowhere."""

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpsep import LogisticRegression
from dpsep.privacy import ledger_connection
from dpsep.privacy.checkpoint import CheckpointError
from dpsep.privacy.ledger import (
    Ledger,
    LedgerError,
    LedgerLocked,
    LedgerUnwritable,
    OverBudget,
    Spent,
    as_ledger,
)
from dpsep.privacy.ledger_connection import guarded, read_url
from dpsep.privacy.ledger_server import ServerStore

from .ledger_help import charge, run_script
from .server import OWNER, PASSWORD, PrivateServer


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ana@db:5433/studies?ledger=a-b_2", "postgresql://ana@db:5433/studies?ledger=a-b_2"),
        ("postgresql+psycopg://ana@db/studies?ledger=x", "postgresql://ana@db/studies?ledger=x"),
        ("POSTGRESQL://ana@db/studies?ledger=x", "postgresql://ana@db/studies?ledger=x"),
        ("postgresql://ana@db/studies", "postgresql://ana@db/studies?ledger=ledger"),
        ("postgresql://ana@db/d?oauth_client_secret=crét&pwd=crét", "postgresql://ana@db/d?ledger=ledger"),
        ("postgresql://ana:s%40crét@db/d?ledger=x", "postgresql://ana@db/d?ledger=x"),
        (
            "postgresql:///d?host=/run/pg&sslmode=require&ledger=x",
            "postgresql:///d?host=%2Frun%2Fpg&ledger=x&sslmode=require",
        ),
    ],
)
def test_a_url_names_a_ledger_and_is_told_without_its_password(url: str, place: str) -> None:
    pytest.importorskip("sqlalchemy")
    store = ServerStore(*read_url(url))
    assert store.place == place
    assert "ledger" not in store.url.query
    assert "crét" not in repr(store)
    assert ServerStore(*read_url(place)).schema == store.schema


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("postgresql://ana:secret@db/d?ledger=Survey", "small letters"),
        ('postgresql://ana:secret@db/d?ledger=a"b', "small letters"),
        ("postgresql://ana:secret@db/d?ledger=a&ledger=b", "given once"),
        ("postgresql://ana:secret@db/d?ledger=" + "a" * 41, "1 to 40"),
        ("postgresql://ana:secret@db/d?ledger=", "1 to 40"),
        ("postgresql://ana:a@secret@db/d?ledger=a", "more than one @"),
        ("postgresql://ana:secret@db?ledger=a", "names no database"),
        ("postgresql://ana:secret@db:port/d", "cannot be read"),
        ("postgresql://db/d?password=secret", "password among its parameters"),
        ("postgresql://db/d?sslpassword=secret", "password among its parameters"),
    ],
)
def test_a_url_that_is_none_is_refused_and_not_repeated(url: str, what: str) -> None:
    pytest.importorskip("sqlalchemy")
    with pytest.raises(LedgerError, match=what) as caught:
        Ledger(url)
    assert "postgresql://USER@HOST/DATABASE?ledger=NAME" in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_without_the_extra_a_url_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("psycopg", "sqlalchemy"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(LedgerError, match=r"pip install 'dpsep\[postgres\]'") as caught:
                Ledger("postgresql://ana:secret@db/d")
        assert "secret" not in str(caught.value)


def test_a_ledger_in_a_file_does_without_the_extra(tmp_path: Path) -> None:
    script = "import sys; from dpsep.privacy.ledger import Ledger"
    script += "; Ledger.create(sys.argv[1], epsilon=1.0, delta=0.0)"
    script += "; print({'sqlalchemy', 'psycopg'} & set(sys.modules))"
    assert run_script(script, tmp_path / "ledger") == "set()\n"


def test_one_database_holds_several_ledgers(server: PrivateServer) -> None:
    one, two = (Ledger.create(server.url(name), epsilon=1.0, delta=0.0) for name in ("one", "two"))
    charge(one)
    assert (one.remaining().epsilon, two.remaining().epsilon) == (0.0, 1.0)
    with pytest.raises(OverBudget):
        charge(one)
    opened = as_ledger(server.url("one").replace("postgresql:", "postgresql+psycopg:"))
    assert opened is not None
    assert opened.id == one.id != two.id
    assert opened.path == one.path


def test_the_password_is_shown_nowhere(
    server: PrivateServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[object] = []
    url = server.url()
    ledger = Ledger.create(url, epsilon=3.0, delta=0.0, timeout=0.2)
    receipt = charge(ledger)
    said += [ledger, ledger.path, ledger._store, receipt, *ledger.rows(), copy.deepcopy(ledger)]
    said.append(pickle.loads(pickle.dumps(ledger)))
    attempts: tuple[Any, ...] = (
        lambda: charge(ledger, 9.0),
        lambda: Ledger(server.url(), timeout=0.2),
        lambda: Ledger(server.url(user="nobody-here"), timeout=0.2),
        lambda: Ledger(url.replace("/postgres?", "/no-such-database?"), timeout=0.2),
        lambda: Ledger(url.replace("host=", "host=/nowhere"), timeout=0.2),
        lambda: Ledger(url + "&no_such_option=1", timeout=0.2),
        lambda: charge(ledger, run="nul \0"),
        lambda: charge(ledger, run="half \ud800"),
    )
    for attempt in attempts:
        with pytest.raises(LedgerError) as caught:
            attempt()
        said.append("".join(traceback.format_exception(caught.value)))
    said += [record.getMessage() for record in caplog.records]
    said += [*capfd.readouterr()]
    shown = "\n".join(f"{one!r} {one}" for one in said)
    assert len(shown) > 2000
    assert PASSWORD not in shown
    assert ledger.spent() == Spent(1.0, 0.0)


def test_a_wrong_password_is_an_error_at_once(server: PrivateServer) -> None:
    with pytest.raises(LedgerError, match="password authentication failed") as caught:
        Ledger(server.url(password="wrong-word"), timeout=1000.0)
    assert "wrong-word" not in str(caught.value)


def test_estimators_print_no_password() -> None:
    url = f"postgresql://ana:{PASSWORD}@db/studies?ledger=survey"
    model = LogisticRegression(epsilon=1.0, ledger=url)
    shown_by: list[Any] = [model, clone(model), make_pipeline(model), pickle.loads(pickle.dumps(model))]
    assert shown_by[1].ledger == url
    for one in shown_by:
        shown = f"{one!r} {one} {one._repr_html_()} {one.get_params()}"
        assert PASSWORD not in shown
        assert "ana:***@db/studies?ledger=survey" in shown
    assert guarded(f"{model.ledger}") == "postgresql://ana:***@db/studies?ledger=survey"
    assert (guarded("a.db"), guarded(None)) == ("a.db", None)


def test_a_role_that_may_only_append_can_charge_and_nothing_more(server: PrivateServer) -> None:
    import psycopg

    Ledger.create(server.url("shared"), epsilon=3.0, delta=0.0)
    server.sql(
        *(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'" for role in ("analyst", "reader", "stranger")),
        "GRANT USAGE ON SCHEMA dpsep_shared TO analyst, reader",
        "GRANT SELECT ON dpsep_shared.entries, dpsep_shared.head TO analyst, reader",
        "GRANT INSERT ON dpsep_shared.entries TO analyst",
    )
    analyst = Ledger(server.url("shared", user="analyst"), epsilon=3.0, delta=0.0)
    assert analyst.verify(charge(analyst)) == 2
    analyst.begin_release("r", 1)
    for statement in (
        "UPDATE dpsep_shared.head SET count = count + 1",
        "DELETE FROM dpsep_shared.entries",
        "TRUNCATE dpsep_shared.entries",
        "DROP TRIGGER entries_stay ON dpsep_shared.entries",
        "ALTER TABLE dpsep_shared.entries DISABLE TRIGGER USER",
        "DROP SCHEMA dpsep_shared CASCADE",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            server.sql(statement, user="analyst")
    reader = Ledger(server.url("shared", user="reader"))
    assert reader.spent().epsilon == 1.0
    with pytest.raises(LedgerUnwritable, match="needs USAGE on the schema, SELECT and INSERT on entries"):
        charge(reader)
    with pytest.raises(LedgerUnwritable, match="may not do that"):
        Ledger(server.url("shared", user="stranger"))
    with pytest.raises(LedgerUnwritable, match="to make a ledger, CREATE on the database"):
        Ledger.create(server.url("own", user="analyst"), epsilon=1.0, delta=0.0)
    assert analyst.verify() == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("LockNotAvailable", LedgerLocked),
        ("InsufficientPrivilege", LedgerUnwritable),
        ("ReadOnlySqlTransaction", LedgerUnwritable),
        ("DiskFull", LedgerUnwritable),
        ("IoError", LedgerUnwritable),
        ("CannotConnectNow", LedgerError),
        ("UndefinedTable", LedgerError),
    ],
)
@pytest.mark.parametrize("sure", [True, False])
def test_what_the_server_says_becomes_an_error_of_its_own_kind(name: str, kind: type, sure: bool) -> None:
    errors = pytest.importorskip("psycopg.errors")
    database_error = ledger_connection.database_error()
    store = ServerStore(*read_url("postgresql://ana:secret@db/studies?ledger=x"))
    said = getattr(errors, name)("the server tells the secret\nand more")
    error = store._explain(database_error("a statement", None, said), 2.5, sure=sure)
    assert type(error) is kind
    assert "postgresql://ana@db/studies?ledger=x" in str(error)
    assert "secret" not in str(error)
    assert ("nothing was charged" in str(error)) == sure
    assert ("may be there all the same" in str(error)) != sure


@pytest.mark.parametrize(
    ("name", "passing"),
    [
        *(("AdminShutdown", True), ("CrashShutdown", True), ("CannotConnectNow", True)),
        *(("TooManyConnections", True), ("DeadlockDetected", True), ("ConnectionFailure", True)),
        *(("DiskFull", False), ("LockNotAvailable", False), ("UniqueViolation", False)),
    ],
)
def test_only_what_passes_is_tried_again(name: str, passing: bool) -> None:
    errors = pytest.importorskip("psycopg.errors")
    kind = ledger_connection.database_error()
    assert ledger_connection.is_passing(kind("a statement", None, getattr(errors, name)("x"))) == passing
    assert not ledger_connection.is_lost(kind("a statement", None, getattr(errors, name)("x")))


def fitted(place: Any, checkpoint: Path | None = None, on_step: Any = None) -> Any:
    draw = np.random.default_rng(3)
    x = draw.uniform(-1, 1, (200, 2))
    y = (x[:, 0] > 0).astype(int)
    model = LogisticRegression(
        epsilon=1.0, delta=1e-6, bounds=(-1, 1), classes=(0, 1), steps=3, ledger=place, checkpoint=checkpoint
    )
    return model.fit(x, y, on_step=on_step)


def test_a_fit_is_charged_by_url_and_a_run_that_died_is_resumed(
    server: PrivateServer, tmp_path: Path
) -> None:
    url = server.url()
    ledger = Ledger.create(url, epsilon=3.0, delta=1e-5)
    fitted(url)
    assert [row.kind for row in ledger.rows()] == ["create", "charge", "finished"]

    def die(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(url, tmp_path / "run", die)
    model = fitted(Ledger(url), tmp_path / "run")
    assert model.privacy_.steps == 4
    kinds = [row.kind for row in ledger.rows()[3:] if row.kind != "release"]
    assert kinds == ["charge", "failed", "extra-step", "finished"]
    with pytest.raises(CheckpointError, match="charged to another ledger"):
        fitted(Ledger.create(server.url(), epsilon=3.0, delta=1e-5), tmp_path / "run")


def shell(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpsep.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))


def test_the_shell_takes_a_url_wherever_it_takes_a_path(server: PrivateServer, tmp_path: Path) -> None:
    url = server.url("shell")
    table = tmp_path / "table.csv"
    draw = np.random.default_rng(3)
    rows = [f"{x:.3f},{int(x > 0)}" for x in draw.uniform(-1, 1, 200)]
    table.write_text("\n".join(["x,y", *rows]))
    missing = shell("ledger", "show", url)
    assert missing.returncode == 2
    assert "dpsep ledger create postgresql://" in missing.stderr
    made = shell("ledger", "create", url, "--epsilon", 2, "--delta", 1e-4)
    assert made.returncode == 0, made.stderr
    again = shell("ledger", "create", url, "--epsilon", 2, "--delta", 1e-4)
    assert again.returncode == 2
    fit = ("fit", table, "--target", "y", "--model", "logistic", "--classes", "0,1", "--bounds", "-1:1")
    done = shell(*fit, "--epsilon", 1.5, "--out", tmp_path / "run", "--ledger", url, "--quiet")
    assert done.returncode == 0, done.stderr
    over = shell(*fit, "--epsilon", 1.5, "--out", tmp_path / "more", "--ledger", url, "--quiet")
    assert over.returncode == 2
    assert "does not fit" in over.stderr
    shown = shell("ledger", "show", url, "--json")
    document = json.loads(shown.stdout)
    assert document["path"] == Ledger(url).path
    assert document["spent"]["epsilon"] == pytest.approx(1.5, rel=1e-9)
    whole = shell("ledger", "verify", url)
    assert f"is whole: {len(document['rows'])} rows" in whole.stdout
    for one in (missing, made, again, done, over, shown, whole, shell("ledger", "show", url)):
        assert PASSWORD not in one.stdout + one.stderr
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or PASSWORD.encode() not in file.read_bytes()
    assert OWNER in shown.stdout
