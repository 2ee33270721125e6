"""A site at work: Flower's SuperNode for the connection, and answers from the code installed here.

A SuperNode as Flower starts it runs, for every message, a fresh process with the app that came from the
server. Here it is started with ``--isolation process``, which leaves that to somebody else: this module asks
the SuperNode for the next message over its local Runtime API, answers it, and asks again. So no code that
comes over the wire is run, the table is read once, and nothing is compiled anew for each round.

**Privacy.** The only thing that leaves is what `Site.answer` returns. The Runtime API listens on loopback and
gives messages to whoever proves to know a secret that is drawn at every start; other users of the machine
cannot read questions or give answers. SuperNode and answers live in one process: where it is killed, both are
gone, and what was answered is in the site's folder.

The functions used are internal to Flower 1.41, to which the extra ``federated`` is pinned.
"""

import functools
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpsep.federated.flower_message import quiet_environment

__all__ = ["free_port", "run_site"]

log = logging.getLogger("dpsep.federated")

PAUSE = 0.1
"""Seconds between looks for a message."""
BEAT = 10
"""Seconds after which, twice over, a node without a sign of life counts as gone; Flower's least."""


def run_site(
    settings: Any,
    *,
    timing: bool = False,
    parent: int | None = None,
) -> None:
    """Connect to the SuperLink and answer until the process is ended.

    Parameters
    ----------
    settings
        A `dpsep.federated.config.SiteSettings` (or what has its ``name``, ``link`` and ``open``).
    timing
        Tell the server how long each answer took; for demonstrations.
    parent
        A process with which this one is to end.
    """
    home = Path(settings.folder) / "flower"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.update(quiet_environment(home))
    secret = secrets.token_bytes(32)
    place = home / "secret"
    place.unlink(missing_ok=True)
    place.touch(0o600)
    place.write_bytes(secret)
    port = free_port()
    site = functools.cache(settings.open)
    worker = threading.Thread(
        target=_work, args=(f"127.0.0.1:{port}", place, site, settings.name, timing), daemon=True
    )
    from flwr.supercore.app_utils import start_parent_process_monitor
    from flwr.supernode.cli import flower_supernode

    if parent is not None:
        start_parent_process_monitor(parent)
    _quicken(settings.link.poll)
    worker.start()
    sys.argv = [
        "flower-supernode",
        *settings.link.supernode_options(),
        *("--isolation", "process", "--host", "127.0.0.1", "--port", str(port)),
        *("--superexec-auth-secret-file", str(place)),
    ]
    flower_supernode()


def _quicken(poll: float) -> None:
    """Let Flower's loop look often, and let the SuperLink notice soon that a node is gone.

    Flower sleeps three seconds between looks: with many short rounds that is most of a fit's time. And a node
    that was killed is taken for alive for up to a minute, in which it cannot come back under its key.
    """
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection, start_client_internal

    setattr(start_client_internal, "time", _Brief(poll))  # noqa: B010
    for module in (heartbeat, fleet_http_connection):
        setattr(module, "HEARTBEAT_DEFAULT_INTERVAL", BEAT)  # noqa: B010


class _Brief:
    """A clock for Flower's loop, whose sleeps are short.

    Parameters
    ----------
    longest
        Seconds that a sleep lasts at most.
    """

    def __init__(self, longest: float) -> None:
        self.longest = longest

    def sleep(self, duration: float) -> None:
        """Sleep, but not for long."""
        time.sleep(min(duration, self.longest))


def free_port() -> int:
    """Return a port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _work(address: str, secret: Path, site: Callable[[], Any], name: str, timing: bool) -> None:
    """Answer messages for ever; where that is not possible, end the process rather than stay deaf."""
    try:
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType

        client = _client(address, secret=secret.read_bytes())
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        _wait_for(address)
        secret.unlink()  # the SuperNode has read it by now
        while True:
            task = client.AcquireTask(wanted)
            if task.HasField("task") and task.token:
                _answer(address, task.token, site, name, timing)
            else:
                time.sleep(PAUSE)
    except BaseException:
        log.exception("the site stops")
        os._exit(1)


def _answer(address: str, token: str, site: Callable[[], Any], name: str, timing: bool) -> None:
    """Take one message, answer it and hand the answer to the SuperNode."""
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    from dpsep.federated.flower_client import reply

    client = _client(address, token=token)
    beat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    beat.start()
    context, status = None, SubStatus.FAILED
    try:
        message, context, _, _ = pull_task_input(client)
        push_message(client, reply(message, site, name, timing=timing), context)
        status = SubStatus.COMPLETED
    except Exception as error:
        log.error("a message was lost: %s", type(error).__name__)
    finally:
        push_task_output(client, context, status, "")
        beat.stop()
        client.close()


def _client(address: str, *, secret: bytes | None = None, token: str | None = None) -> Any:
    """Open the SuperNode's Runtime API, as one who looks for messages or as one who has taken one."""
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    trust: list[Any] = [RuntimeVersionHttpInterceptor(component_name="dpsep")]
    if token is not None:
        trust.append(RuntimeTokenHttpInterceptor(token))
    if secret is not None:
        methods = frozenset({"/flwr.proto.Runtime/AcquireTask"})
        trust.append(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=methods))
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,
        root_certificates=None,
        interceptors=trust,
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _wait_for(address: str, patience: float = 120.0) -> None:
    """Wait until somebody listens."""
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)
