"""A whole federation on one machine: a SuperLink and one process a site, all on loopback.

For demonstrations and tests: the processes, messages and folders are those of a deployment, the network is
not. Sites may be told to misbehave (`FAULTS`), to see that nothing is lost.

**Privacy.** The sites tell how long they worked (`timing`), which a real site does not. Everything else is as
in a deployment; without TLS whoever has an account on the machine could take part.
"""

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpsep.federated.flower_link import end
from dpsep.federated.flower_site import BEAT, run_site

__all__ = ["FAULTS", "Sites", "local_sites", "main", "show_log"]

FAULTS = {
    "kill": "kill -9 in round 2, between keeping the answer and sending it; started again",
    "garbage": "random bytes in place of the first answer to round 2",
    "slow": "ten times slower from round 2 on",
}


class Sites:
    """The processes of the sites.

    Parameters
    ----------
    configs
        Each site's file of settings.
    logs
        Folder for what the processes print.
    faults
        A key of `FAULTS` for sites that are to misbehave.
    """

    def __init__(
        self, configs: Mapping[str, Path], logs: Path, faults: Mapping[str, str] | None = None
    ) -> None:
        self.configs = dict(configs)
        self.logs = logs
        self.faults = dict(faults or {})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts: list[str] = []
        self._closing = threading.Event()
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str) -> None:
        """Start a site's process."""
        command = [sys.executable, "-m", "dpsep.federated.local", str(self.configs[name]), str(os.getpid())]
        fault = self.faults.get(name)
        with (self.logs / f"{name}.log").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [*command, *([] if fault is None else ["--fault", fault])],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a site's process as ``kill -9`` does."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def watch(self) -> None:
        """Start sites that ended again, without their fault, until `close`.

        The SuperLink takes a node that was killed for alive until it has missed two beats, and refuses it
        till then: the first start waits for one of them, and may have to be repeated.
        """
        ended: dict[str, float] = {}
        while not self._closing.wait(1.0):
            for name, process in list(self.processes.items()):
                if process.poll() is None:
                    continue
                killed = process.returncode == -signal.SIGKILL
                if time.monotonic() - ended.setdefault(name, time.monotonic()) < (BEAT if killed else 0):
                    continue
                if killed:
                    self.restarts.append(name)
                self.faults.pop(name, None)
                del ended[name]
                self.start(name)

    def close(self) -> None:
        """End all processes."""
        self._closing.set()
        end(*self.processes.values())


@contextlib.contextmanager
def local_sites(
    configs: Mapping[str, Path], logs: Path, faults: Mapping[str, str] | None = None
) -> Iterator[Sites]:
    """Run the sites' processes while the block runs; a site that is killed is started again."""
    sites = Sites(configs, logs, faults)
    watcher = threading.Thread(target=sites.watch, daemon=True)
    try:
        for name in configs:
            sites.start(name)
        watcher.start()
        yield sites
    finally:
        sites._closing.set()
        if watcher.is_alive():
            watcher.join()
        sites.close()


class _Faulty:
    """A site that misbehaves in one way."""

    def __init__(self, site: Any, fault: str) -> None:
        self.site = site
        self.name = site.name
        self.fault = fault
        self.rounds = 0

    def answer(self, question: bytes) -> bytes:
        """Answer as the fault says."""
        from dpsep.federated import wire

        start = time.perf_counter()
        answer = self.site.answer(question)
        if wire.read(question, tuple(wire.QUESTIONS)).kind != wire.ROUND:
            return answer
        self.rounds += 1
        if self.fault == "slow" and self.rounds > 1:
            time.sleep(9 * (time.perf_counter() - start))
        if self.fault == "garbage" and self.rounds == 2:
            return os.urandom(100)
        if self.fault == "kill" and self.rounds == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


class _Settings:
    """A site's settings, whose site misbehaves."""

    def __init__(self, settings: Any, fault: str) -> None:
        self.name, self.link, self.folder = settings.name, settings.link, settings.folder
        self._settings, self._fault = settings, fault

    def open(self) -> _Faulty:
        """Return the site."""
        return _Faulty(self._settings.open(), self._fault)


def show_log() -> None:
    """Print what the federation's log says; Flower prints its own."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("dpsep.federated")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def main(arguments: list[str] | None = None) -> None:
    """Run one site: ``python -m dpsep.federated.local CONFIG PARENT [--fault NAME]``."""
    parser = argparse.ArgumentParser(description="Run one site of a federation on this machine.")
    parser.add_argument("config", type=Path)
    parser.add_argument("parent", type=int, help="process with which to end")
    parser.add_argument("--fault", choices=tuple(FAULTS))
    given = parser.parse_args(arguments)
    show_log()
    from dpsep.federated.config import read_site

    settings = read_site(given.config)
    chosen: Any = settings if given.fault is None else _Settings(settings, given.fault)
    run_site(chosen, timing=True, parent=given.parent)


if __name__ == "__main__":
    main()
