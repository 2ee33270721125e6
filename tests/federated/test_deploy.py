"""Settings, certificates and keys of a deployment: read strictly, secure by default."""

import re
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpsep[federated]'")

from dpsep import Ledger
from dpsep.cli.commands import app
from dpsep.data import Column, Schema
from dpsep.federated.config import ConfigError, read_server, read_site
from dpsep.federated.deploy import make_deployment, make_key_pair
from dpsep.federated.flower_link import LinkError, public_key
from dpsep.federated.records import open_site

SCHEMA = Schema(
    (Column("u", "number", (-1, 1)), Column("y", "category", categories=("no", "yes"))), target="y"
)


def call(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(part) for part in arguments])


def assert_refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("dpsep: error: ")
    for word in words:
        assert word in last


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployment with a table at site a."""
    place = tmp_path / "deployment"
    make_deployment(place, ["a", "b"], "server.example.org:9092")
    site = place / "sites" / "a"
    (site / "table.csv").write_text("u,y\n0.5,yes\nnonsense,no\n-0.25,no\n")
    Ledger.create(site / "ledger.db", epsilon=1, delta=1e-5)
    for home in (site, place / "server"):
        (home / "schema.toml").write_text(SCHEMA.to_toml())
    return place


def edit(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_private_keys_are_their_owners_alone_and_each_site_has_its_own(folder: Path) -> None:
    keys = [folder / "authority" / "authority.key", folder / "server" / "tls" / "server.key"]
    keys += [folder / "sites" / name / "site.key" for name in "ab"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in keys] == [0o600] * 4
    assert public_key(folder / "server" / "sites" / "a.pub") != public_key(
        folder / "server" / "sites" / "b.pub"
    )
    assert not list((folder / "server").rglob("site.key"))
    assert not list((folder / "sites").rglob("server.key"))


def test_the_certificate_is_the_servers_and_the_authority_signed_it(folder: Path) -> None:
    tls = folder / "server" / "tls"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.crt", tls / "server.key")
    from cryptography import x509

    server, root = (
        x509.load_pem_x509_certificate((tls / name).read_bytes()) for name in ("server.crt", "authority.crt")
    )
    server.verify_directly_issued_by(root)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "server.example.org" in names.get_values_for_type(x509.DNSName)


def test_the_templates_turn_tls_and_authentication_on(folder: Path) -> None:
    server = read_server(folder / "server" / "server.toml")
    site = read_site(folder / "sites" / "a" / "site.toml")
    assert "--enable-supernode-auth" in server.link.superlink_options()
    assert "--insecure" not in server.link.superlink_options()
    options = site.link.supernode_options()
    assert "--auth-supernode-private-key" in options
    assert "--root-certificates" in options
    assert "--insecure" not in options
    assert site.modes == ("server",)


def test_a_site_opens_its_table_and_a_bad_cell_is_a_row_that_counts_for_nothing(folder: Path) -> None:
    site = open_site(read_site(folder / "sites" / "a" / "site.toml"))
    assert repr(site) == "Site('a', rows=3, columns=1)"


def test_declared_rows_leave_the_table_closed(folder: Path) -> None:
    config = edit(folder / "sites" / "a" / "site.toml", "# rows = 12345", "rows = 7")
    settings = read_site(config)
    (folder / "sites" / "a" / "table.csv").write_text("not even a table")
    assert repr(open_site(settings)) == "Site('a', rows=7, columns=1)"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'modes = ["server"]',
            'modes = ["servers"]',
            ["'modes' must be a list of some of server, sites, own"],
        ),
        ("most_epsilon = 1.0", "most_epsilom = 1.0", ["'most_epsilom' is no key", "most_epsilon"]),
        ("most_epsilon = 1.0", "most_epsilon = -1.0", ["'most_epsilon' must be a positive number"]),
        ('table = "table.csv"', 'table = "tabel.csv"', ["'table' must be a file", "tabel.csv"]),
        ('name = "a"', "", ["'name' is missing"]),
        ('superlink = "server.example.org:9092"', 'superlink = "server"', ["host:port"]),
        ('authority = "authority.crt"', "insecure = true", ["in the clear", "127.0.0.1"]),
        ('name = "a"', 'name = "a', ["is no TOML file"]),
        ("# own_epsilon = 0.5", "own_epsilon = 0.5", ["'own_delta' is missing"]),
        ("most_epsilon = 1.0", "most_epsilon = nan", ["'most_epsilon' must be a positive number"]),
        ("most_epsilon = 1.0", "most_epsilon = inf", ["'most_epsilon' must be a positive number"]),
        ("most_epsilon = 1.0", f"most_epsilon = 1{'0' * 400}", ["'most_epsilon' must be a positive number"]),
        ("most_epsilon = 1.0", f"most_epsilon = {'9' * 5000}", ["is no TOML file"]),
        ("most_epsilon = 1.0", f"most_epsilon = {'[' * 5000}", ["is no TOML file"]),
        ("most_epsilon = 1.0", "most_epsilon = true", ["'most_epsilon' must be a positive number"]),
        ("most_epsilon = 1.0", "most_epsilon = 1\nmost_epsilon = 2", ["is no TOML file", "overwrite"]),
        ("most_epsilon = 1.0", '"a` - at `$.b" = 1', ["is no key of"]),
        ("most_epsilon = 1.0", '" - at `$.b" = 1', ["unknown field"]),
        ("# rows = 12345", "rows = 1.0", ["'rows' must be a whole number, 0 or more"]),
        ('modes = ["server"]', "modes = []", ["'modes' must be a list of some of server, sites, own"]),
        ('key = "site.key"', "key = 1979-05-27", ["'key' in [link] must be a text in quotes"]),
        ('key = "site.key"', 'kee = "site.key"', ["'kee' is no key of [link] of a site's settings"]),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(
    folder: Path, old: str, new: str, words: list[str]
) -> None:
    config = edit(folder / "sites" / "a" / "site.toml", old, new)
    with pytest.raises(ConfigError) as error:
        read_site(config)
    for word in words:
        assert word in str(error.value)
    assert_refused(call("federate", "check", config), *words[:1])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('model = "logistic"', 'model = "gama"', "'model' in [fit] must be one of linear, logistic, probit"),
        ('missing = "drop"', 'missing = "skip"', "'missing' in [fit] must be one of drop, stop"),
        (
            'missing = "drop"',
            "sampling = 1.5",
            "'sampling' in [fit] must be a rate above 0 and at most 1, or",
        ),
        ('a = "sites/a.pub"', "a = 3", "'a' in [sites] must be a text in quotes"),
        ('a = "sites/a.pub"', 'a = "sites/c.pub"', "'a' in [sites] must be a file, and there is none at"),
        ('key = "tls/server.key"', "", "'key' in [link] is missing"),
        (
            'address = "0.0.0.0:9092"',
            'address = "127.0.0.1:9092"\ninsecure = true',
            "'certificate' in [link] says nothing where insecure = true",
        ),
        ("[fit]", "[fti]", "is no key of a server's settings; those are link, sites, fit"),
    ],
)
def test_a_wrong_setting_of_a_server_is_named_with_what_is_allowed(
    folder: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        read_server(edit(folder / "server" / "server.toml", old, new))


def test_check_shows_settings_of_both_sides(folder: Path) -> None:
    site = call("federate", "check", folder / "sites" / "a" / "site.toml")
    assert site.exit_code == 0, site.output
    assert "TLS, with a key" in site.stdout
    assert "epsilon 1 and delta 1e-05 left" in site.stdout
    assert "0.5" not in site.stdout
    server = call("federate", "check", folder / "server" / "server.toml")
    assert server.exit_code == 0, server.output
    assert "LogisticRegression" in server.stdout


def test_a_key_that_others_can_read_is_refused(folder: Path) -> None:
    (folder / "sites" / "a" / "site.key").chmod(0o644)
    assert_refused(call("federate", "check", folder / "sites" / "a" / "site.toml"), "chmod 600")


def test_a_model_that_does_not_suit_the_target_is_refused(folder: Path) -> None:
    config = edit(folder / "server" / "server.toml", 'model = "logistic"', 'model = "poisson"')
    assert_refused(call("federate", "check", config), "needs a target that is a number")


def test_nothing_is_overwritten(folder: Path) -> None:
    assert_refused(call("federate", "init", folder, "--sites", "a,b"), "exists")
    assert_refused(call("federate", "key", folder / "sites" / "a" / "site.key"), "exists")


@pytest.mark.parametrize("sites", ["a", "a,a", "a,../b", "a,"])
def test_sites_need_names_that_can_be_folders(tmp_path: Path, sites: str) -> None:
    assert_refused(call("federate", "init", tmp_path / "new", "--sites", sites), "two or more sites")
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_made_at_the_site(tmp_path: Path) -> None:
    done = call("federate", "key", tmp_path / "own.key")
    assert done.exit_code == 0, done.output
    assert public_key(tmp_path / "own.key.pub")
    with pytest.raises(LinkError, match="holds no public key"):
        public_key(tmp_path / "own.key")
    with pytest.raises(ConfigError, match="exists"):
        make_key_pair(tmp_path / "own.key")
