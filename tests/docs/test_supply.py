"""What is installed is pinned, nothing names a registry, and a fit works where there is no network."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dpsep"
PINNED_IN_PART = {"arviz": 'python_version < "3.12"'}
"""Requirements whose pin holds for some versions of Python only."""
NETWORK = {
    *("psycopg", "sqlalchemy"),
    *("aiohttp", "asyncio", "flwr", "ftplib", "grpc", "http", "httpx", "pooch", "requests", "smtplib"),
    *("socket", "socketserver", "ssl", "urllib", "urllib3", "webbrowser", "websockets", "xmlrpc"),
}
FLOWER = {f"federated/flower_{name}.py" for name in ("client", "link", "message", "server", "site")}
"""Modules that connect the sites of a federation."""
LEDGERS = {"privacy/ledger_connection.py", "privacy/ledger_server.py"}
"""Modules that reach the server of a ledger, where one is named by a URL."""
GUARD = """
import sys

REFUSED = ("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.sendto", "socket.bind")


def refuse(event, arguments):
    if event.startswith(REFUSED):
        raise ConnectionError("no network: " + event)


sys.addaudithook(refuse)
"""
FIT = """
import numpy as np
from dpsep import Ledger, LinearRegression
from dpsep.estimators.store import load, save

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (200, 2))
ledger = Ledger.create("spent", epsilon=2, delta=1e-2)
model = LinearRegression(1.0, 1e-3, bounds=(-1, 1), target_bounds=(-4, 4), steps=2, ledger=ledger)
model.fit(X, X @ [1.0, 2.0])
save(model, "saved")
assert np.array_equal(load("saved").predict(X), model.predict(X))
print(model.privacy_.secure)
"""


def requirements() -> list[str]:
    """Names of everything that pyproject asks for, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    names = {re.match(r"[\w.-]+", one).group() for one in asked}  # pyright: ignore[reportOptionalMemberAccess]
    return sorted(names - {project["name"]})


def pins() -> dict[str, tuple[str, str]]:
    """Version and marker of each line of the constraints."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([\w.-]+)==(\d[\w.]*)(?:; (.+))?", line)
            assert match, f"{line!r} is no exact version"
            found[match[1]] = (match[2], match[3] or "")
    return found


def imports(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("name", requirements())
def test_a_requirement_is_pinned_to_one_version(name: str) -> None:
    assert name in pins()
    assert pins()[name][1] == PINNED_IN_PART.get(name, "")


def test_constraints_are_used_by_every_installation_of_the_makefile() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert [line for line in installs if "--constraint constraints.txt" not in line] == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "Makefile"])
def test_no_registry_is_named(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.findall(r"\w+://|index-url|find-links|trusted-host|@ ?git\+", text) == []


def test_only_federations_and_ledgers_on_a_server_import_what_can_reach_a_network() -> None:
    reaching = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if imports(path) & NETWORK
    }
    assert reaching == FLOWER | LEDGERS


def test_the_guard_refuses_a_connection(tmp_path: Path) -> None:
    for call in ("create_connection(('127.0.0.1', 9))", "getaddrinfo('localhost', 9)"):
        done = run(f"{GUARD}\nimport socket\nsocket.{call}", tmp_path)
        assert "no network" in done.stderr


def test_a_private_fit_is_made_saved_loaded_and_predicts_without_a_network(tmp_path: Path) -> None:
    done = run(GUARD + FIT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
