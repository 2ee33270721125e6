"""Places for a ledger: a file, and a PostgreSQL server that is started for the tests and then stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import NoServer, PrivateServer, private_server


@pytest.fixture(scope="session")
def _one_server() -> Iterator[PrivateServer | str]:
    pytest.importorskip("sqlalchemy", reason="ledgers on a server are not tested: no SQLAlchemy")
    pytest.importorskip("psycopg", reason="ledgers on a server are not tested: no psycopg")
    try:
        with private_server() as server:
            yield server
    except NoServer as error:
        yield str(error)


@pytest.fixture
def server(_one_server: PrivateServer | str) -> PrivateServer:
    """A running server; where there can be none, the test is skipped and says why."""
    if isinstance(_one_server, str):
        pytest.skip(f"ledgers on a server are not tested: {_one_server}")
    return _one_server


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where a test makes its ledger: a new path, and the URL of a new ledger."""
    if request.param == "file":
        return tmp_path / "survey.ledger"
    return request.getfixturevalue("server").url()
