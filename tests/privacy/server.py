"""A PostgreSQL server of one's own: a folder, a socket in it, no port, and everything gone at the end."""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

PASSWORD = "kept-to-itself"
OWNER = "owner"
OTHER_USERS = ("postgres", "nobody")
"""Whom the server runs as where the tests run as root, which PostgreSQL refuses."""


class NoServer(RuntimeError):
    """A server cannot be started here; the message says why."""


class PrivateServer:
    """A server in a temporary folder, reached by its Unix socket alone, with fsync on as it comes.

    Parameters
    ----------
    folder
        An empty folder with a short name that the server's user can enter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = find_programs()
        self._data = folder / "data"
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        self._surroundings: dict[str, Any] = {"env": environment, "cwd": folder, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            user = other_user()
            self._surroundings |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)
        word = folder / "word"
        word.write_text(PASSWORD)
        word.chmod(0o644)
        self._run("initdb", "--username", OWNER, "--pwfile", word, "--auth", "scram-sha-256", *_ENCODING)
        word.unlink()
        self.start()

    def start(self, **settings: str) -> None:
        """Start it as a child of this process and wait until it takes connections."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder)} | settings
        command = [self._programs / "postgres", "-D", self._data]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, **self._surroundings
            )
        until = time.monotonic() + 120
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoServer(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, mode: str = "fast") -> None:
        """Stop it if it runs: `fast` ends sessions, `immediate` is as good as a crash."""
        if self._process.poll() is not None:
            return
        self._run("pg_ctl", "-W", "-m", mode, "stop")
        self._process.wait(120)

    def client(self, program: str, *arguments: str, typed: str = "") -> str:
        """Run one of PostgreSQL's own programs on the server and return what it printed."""
        command = [str(self._programs / program), "-h", str(self.folder), "-U", OWNER, *arguments]
        environment = self._surroundings["env"] | {"PGPASSWORD": PASSWORD}
        done = subprocess.run(
            command, input=typed, capture_output=True, text=True, timeout=150, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _is_ready(self) -> bool:
        notes = self._data / "postmaster.pid"  # its eighth line says how far the server is
        lines = notes.read_text().splitlines() if notes.exists() else []
        return len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"

    def restart(self, mode: str = "fast") -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def url(self, ledger: str | None = None, user: str = OWNER, password: str = PASSWORD) -> str:
        """Return the URL of a ledger, of one with a new name by default."""
        name = ledger or f"t{secrets.token_hex(6)}"
        return f"postgresql://{user}:{password}@/postgres?host={quote(str(self.folder))}&ledger={name}"

    def connect(self, user: str = OWNER) -> Any:
        """Return a connection such as anybody with a client could open."""
        import psycopg

        return psycopg.connect(
            host=str(self.folder), user=user, password=PASSWORD, dbname="postgres", autocommit=True
        )

    def sql(self, *statements: str, user: str = OWNER) -> list[Any]:
        """Run statements and return the rows of the last one."""
        rows = []
        with self.connect(user) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(part) for part in (self._programs / program, "-D", self._data, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, **self._surroundings)
        if done.returncode:
            raise NoServer(f"{program} failed: {(done.stdout + done.stderr)[-2000:]}")


_ENCODING = ("--encoding", "UTF8", "--locale", "C")


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs, where Debian puts them or on the path."""
    if os.name != "posix":
        raise NoServer("the server of the tests is reached by a Unix socket, and there are none here")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    for folder in (*reversed(folders), *([Path(found).resolve().parent] if found else [])):
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise NoServer("PostgreSQL's initdb and pg_ctl are not installed")


def other_user() -> Any:
    """Return a user that is not root, to run the server as."""
    import pwd

    for name in OTHER_USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoServer("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


@contextlib.contextmanager
def private_server() -> Iterator[PrivateServer]:
    """Start a server in a folder of its own and take both away at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = None
    try:
        try:
            server = PrivateServer(folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise NoServer(f"PostgreSQL cannot be started in a temporary folder ({error})") from error
        yield server
    finally:
        if server is not None:
            with contextlib.suppress(NoServer):
                server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
