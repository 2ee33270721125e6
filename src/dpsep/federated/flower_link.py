"""The server at work: Flower's SuperLink for the connections, and a run whose server part is this process.

The SuperLink is started with ``--isolation process``: it runs no app. This module registers the sites' keys,
starts a run and takes its server part itself, which gives the grid that `FlowerTransport` needs. The app of
the run is a file of settings without code.

**Privacy.** The SuperLink keeps messages in memory only. Its API hands the server's part of a run to whoever
proves to know a secret that is drawn at every start, so nobody else can ask the sites. Whoever reaches the
port can still start runs that nobody serves, or stop one: that costs availability, not privacy; let the
firewall admit the sites only.

The functions used are internal to Flower 1.41, to which the extra ``federated`` is pinned.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpsep.federated.flower_message import quiet_environment

__all__ = ["LinkError", "end", "open_link", "public_key", "run_app", "superlink"]

START = """
import sys
from flwr.supercore.app_utils import start_parent_process_monitor
start_parent_process_monitor(int(sys.argv.pop(1)))
from flwr.superlink.cli import flower_superlink
flower_superlink()
"""
"""Starts a SuperLink that ends with the process that started it, however that ends."""


class LinkError(RuntimeError):
    """The SuperLink did not start or did not do what was asked."""


@contextlib.contextmanager
def superlink(link: Any, *, apps: bool = False, patience: float = 120.0) -> Iterator["Running"]:
    """Run a SuperLink while the block runs.

    Parameters
    ----------
    link
        A `dpsep.federated.config.LinkSettings`.
    apps
        Let it run the apps that are sent to it, as ``flwr run`` does. Not needed for `open_link`.
    patience
        Seconds to wait until it listens.
    """
    home = Path(tempfile.mkdtemp(prefix="dpsep-link-"))
    log_file = home / "superlink.log"
    secret = secrets.token_bytes(32)
    place = home / "secret"
    place.touch(0o600)
    place.write_bytes(secret)
    options = ["--isolation", "process", "--superexec-auth-secret-file", str(place)]
    command = [
        *(sys.executable, "-c", START, str(os.getpid())),
        *link.superlink_options(),
        *("--disable-runtime-dependency-installation", *([] if apps else options)),
    ]
    with log_file.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=quiet_environment(home) | {"PATH": _path()},
            start_new_session=True,
        )
    try:
        running = Running(link, secret, process, log_file)
        running.wait(patience)
        yield running
    finally:
        end(process)
        shutil.rmtree(home, ignore_errors=True)


class Running:
    """A SuperLink that runs, and its Control API."""

    def __init__(self, link: Any, secret: bytes, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self.link = link
        self.secret = secret
        self.process = process
        self.log_file = log_file

    def wait(self, patience: float) -> None:
        """Wait until the API answers."""
        from flwr.proto.control_pb2 import ListNodesRequest

        limit = time.monotonic() + patience
        while True:
            if self.process.poll() is not None:
                raise LinkError(
                    f"the SuperLink ended at once (exit code {self.process.returncode}); is "
                    f"{self.link.address} free, and are the certificate files right? It said: {self._said()}"
                )
            try:
                with contextlib.closing(self._control()) as control:
                    control.ListNodes(ListNodesRequest())
                return
            except Exception as error:
                if time.monotonic() > limit:
                    raise LinkError(f"the SuperLink did not answer within {patience:g} s.") from error
                time.sleep(0.2)

    def register(self, keys: Mapping[str, bytes]) -> None:
        """Let the nodes with these keys in."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        with contextlib.closing(self._control()) as control:
            for name, key in keys.items():
                control.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def start(self, fab: bytes) -> int:
        """Start a run and return its number."""
        from flwr.common.serde import fab_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        app = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        with contextlib.closing(self._control()) as control:
            answer = control.StartRun(StartRunRequest(fab=app))
        if not answer.HasField("run_id"):
            raise LinkError("the SuperLink did not start the run.")
        return answer.run_id

    def _control(self) -> Any:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        return ControlHttpClient.from_server_address(
            server_address=self.link.address,
            insecure=self.link.insecure,
            root_certificates=None if self.link.insecure else self.link.authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="dpsep")],
        )

    def _said(self) -> str:
        text = self.log_file.read_text("utf-8", "replace").split("\n")
        return " ".join(" ".join(text[-4:]).split())


@contextlib.contextmanager
def open_link(link: Any, keys: Mapping[str, bytes] | None = None) -> Iterator[Any]:
    """Run a SuperLink with one run in it and yield the grid of that run.

    Parameters
    ----------
    link
        A `dpsep.federated.config.LinkSettings`.
    keys
        Public keys of the sites' SuperNodes; None without authentication.
    """
    with superlink(link) as running:
        if keys is not None:
            running.register(keys)
        run = running.start(run_app())
        with _taken(running, run) as grid:
            yield grid


def run_app() -> bytes:
    """Build the app of a run: settings, no code."""
    from flwr.cli.build import build_fab_from_files

    text = files("dpsep.federated").joinpath("templates/app/pyproject.toml").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a package that Flower uses
        return build_fab_from_files({"pyproject.toml": text})[0]


def public_key(path: Path) -> bytes:
    """Read a SuperNode's public key as Flower's API takes it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = load_ssh_public_key(path.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise LinkError(f"{path} holds no public key of a SuperNode; 'dpsep federate key' makes a pair.")
    return public_key_to_bytes(key)


def end(*processes: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End processes that were started in sessions of their own, and what they started; kill what stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        limit = time.monotonic() + patience
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit - time.monotonic()))


@contextlib.contextmanager
def _taken(running: Running, run: int) -> Iterator[Any]:
    """Take the server's part of a run, keep it alive, and hand it back finished."""
    from flwr.common.constant import SubStatus
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    certificates = None if running.link.insecure else running.link.authority.read_bytes()
    grid = HttpGrid(
        running.link.address, running.link.insecure, certificates, token=_token(running, run, certificates)
    )
    client = grid._runtime_client
    beat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    beat.start()
    status = SubStatus.FAILED
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid.set_run(run_from_proto(task.run))
        yield grid
        status = SubStatus.COMPLETED
    finally:
        with contextlib.suppress(Exception):  # the result does not depend on Flower's book-keeping
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
        beat.stop()
        grid.close()


def _token(running: Running, run: int, certificates: bytes | None) -> str:
    """Ask for the server's part of our run until it is there; leave parts of other runs alone."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    methods = frozenset({"/flwr.proto.Runtime/AcquireTask"})
    client = RuntimeHttpClient.from_server_address(
        server_address=running.link.address,
        insecure=running.link.insecure,
        root_certificates=certificates,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="dpsep"),
            SuperExecAuthHttpInterceptor(master_secret=running.secret, protected_methods=methods),
        ],
    )
    limit = time.monotonic() + 60.0
    with contextlib.closing(client):
        while time.monotonic() < limit:
            task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if task.HasField("task") and task.task.run_id == run and task.token:
                return task.token
            time.sleep(0.1)
    raise LinkError("the SuperLink did not hand over the run's server part within 60 s.")


def _path() -> str:
    """Search for Flower's commands beside this Python first: a SuperLink that runs apps calls them."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
