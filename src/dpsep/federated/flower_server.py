"""The server's side of Flower: a `Transport` over Flower's grid, and the ServerApp.

`FlowerTransport` sends a question to the node of each site and collects the answers of these very messages
until the time is up. Which node is which site is known from the nodes' keys where SuperNodes authenticate
(`keys`); without keys a node is asked for its name, which is for demonstrations on one machine: anybody who
reaches the SuperLink could then say any name.

**Privacy.** What a site answers is passed on unchecked and unlooked at; `dpsep.federated.federation` checks
it. A late answer belongs to the message that asked for it, and nobody looks for that message's answer again,
so it is never taken for an answer to a later one (run and round are checked again by the core). Events name
sites, counts, seconds and Flower's error codes: no content.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from dpsep.federated.flower_message import ASK, NAME, content, payload, seconds

__all__ = ["FlowerTransport", "Traffic", "app"]

log = logging.getLogger("dpsep.federated")

PAUSE = 0.1
"""Seconds between looks for answers."""
INTRODUCTION = 20.0
"""Seconds that a node without a key has to say its name."""


class Traffic(NamedTuple):
    """One exchange with the sites.

    Attributes
    ----------
    head
        The first four bytes of a question, which say its kind (`dpsep.federated.wire`).
    asked, answered
        Number of sites.
    sent, received
        Bytes of the questions and of the answers, as the core made them.
    seconds
        From sending to the last answer (or the end of the patience).
    work
        The longest time that a site says it worked; None where none says.
    """

    head: bytes
    asked: int
    answered: int
    sent: int
    received: int
    seconds: float
    work: float | None


class FlowerTransport:
    """Questions and answers over a Flower grid.

    Parameters
    ----------
    grid
        Of the ServerApp's run.
    sites
        The sites' names; those of `keys` if left out.
    keys
        The public key of each site's SuperNode (as Flower's `public_key_to_bytes` writes it). With keys a
        node that has none of them is no site, whatever name it gives.
    patience
        Seconds to wait at the start until every site's node is there.
    on_event
        Called with a line for the log.
    """

    def __init__(
        self,
        grid: Grid,
        sites: Sequence[str] | None = None,
        *,
        keys: Mapping[str, bytes] | None = None,
        patience: float = 60.0,
        on_event: Callable[[str], None] = log.info,
    ) -> None:
        if sites is None and keys is None:
            raise ValueError("name the sites, or give their keys: nothing else says who takes part.")
        self.grid = grid
        self.keys = None if keys is None else dict(keys)
        self.names = tuple(sites if sites is not None else keys or ())
        unknown = [] if keys is None else [name for name in self.names if name not in keys]
        if unknown:
            raise ValueError(f"there is no key for {', '.join(unknown)}; give one for each site, or none.")
        self.nodes: dict[str, int] = {}
        self.told: dict[int, str] = {}
        self.silent: set[str] = set()
        self.traffic: list[Traffic] = []
        self.on_event = on_event
        self._gather(patience)

    def sites(self) -> tuple[str, ...]:
        """Return the names of all sites; one whose node is not there does not answer."""
        return self.names

    def ask(self, questions: dict[str, bytes], timeout: float) -> dict[str, bytes]:
        """Send each site its question; return the answers that came within the time, unchecked."""
        start = time.monotonic()
        end = start + timeout
        unsent = dict(questions)
        waiting: dict[str, str] = {}
        answers: dict[str, bytes] = {}
        work: list[float] = []
        doubtful = self.silent.intersection(questions)
        self._send(unsent, waiting, end, doubtful)
        while unsent or waiting:
            if unsent:
                self._look(doubtful or unsent, end)
                doubtful = set()
                self._send(unsent, waiting, end)
            for name, reply in self._replies(waiting, end):
                answer = payload(reply)
                if answer is None:
                    self._note_error(name, reply)
                    if reply.has_error():  # its node is gone, and may come back within the time
                        unsent[name] = questions[name]
                        time.sleep(min(1.0, max(0.0, end - time.monotonic())))
                    continue
                answers[name] = answer
                spent = seconds(reply)
                work += [] if spent is None else [spent]
            if time.monotonic() >= end:
                break
            if unsent or waiting:
                time.sleep(PAUSE)
        self.silent = {name for name in questions if name not in answers}
        sizes = (sum(map(len, questions.values())), sum(map(len, answers.values())))
        took = time.monotonic() - start
        head = next(iter(questions.values()), b"")[:4]
        self.traffic.append(
            Traffic(head, len(questions), len(answers), *sizes, took, max(work, default=None))
        )
        return answers

    def _gather(self, patience: float) -> None:
        """Wait until every site's node is there, or the time is up."""
        end = time.monotonic() + patience
        self._look(self.names, end)
        while len(self.nodes) < len(self.names) and time.monotonic() < end:
            time.sleep(PAUSE)
            self._look(self.names, end)
        missing = [name for name in self.names if name not in self.nodes]
        if missing:
            self.on_event(f"no node of {', '.join(missing)} within {patience:g} s")

    def _look(self, wanted: Iterable[str], end: float) -> None:
        """Look once for the nodes of sites; one that starts anew may be another than before."""
        nodes = self._patiently(lambda: list(self.grid.get_nodes()), end) or []
        online = {node.node_id: node for node in nodes if node.status in ("online", "")}
        for name in [name for name, node in self.nodes.items() if node not in online]:
            del self.nodes[name]
        if self.keys is not None:
            owners = {key: name for name, key in self.keys.items()}
            found = {owners[node.public_key]: node.node_id for node in nodes if node.public_key in owners}
            self.nodes |= {name: node for name, node in found.items() if node in online}
        elif tuple(wanted):
            self._introduce([node for node in online if node not in self.told], end)

    def _introduce(self, strangers: Iterable[int], end: float) -> None:
        """Ask nodes without keys for their names; the newest node of a name is the site."""
        asked = {str(node): self._message(node, NAME, b"", INTRODUCTION) for node in strangers}
        limit = min(end, time.monotonic() + INTRODUCTION)
        waiting = self._push(asked, limit)
        while waiting and time.monotonic() < limit:
            for node, reply in self._replies(waiting, limit):
                name = (payload(reply) or b"").decode("utf-8", "replace")
                self.told[int(node)] = name
                if name in self.names:
                    self.nodes[name] = int(node)
            time.sleep(PAUSE)
        self.told |= {int(node): "" for node in waiting.values()}

    def _send(
        self, unsent: dict[str, bytes], waiting: dict[str, str], end: float, but: Iterable[str] = ()
    ) -> None:
        """Push the questions of sites whose nodes are known."""
        known = [name for name in unsent if name in self.nodes and name not in but]
        left = end - time.monotonic()
        messages = {name: self._message(self.nodes[name], ASK, unsent.pop(name), left) for name in known}
        waiting |= self._push(messages, end)

    def _message(self, node: int, kind: str, data: bytes, timeout: float) -> Message:
        return Message(content(data), dst_node_id=node, message_type=kind, ttl=max(timeout, 1.0) + 60.0)

    def _push(self, messages: Mapping[str, Message], end: float) -> dict[str, str]:
        """Push messages; return whose reply each number is to bring."""
        if not messages:
            return {}
        pushed = self._patiently(lambda: list(self.grid.push_messages(list(messages.values()))), end) or []
        return {number: name for number, name in zip(pushed, messages, strict=False) if number}

    def _replies(self, waiting: dict[str, str], end: float) -> Iterable[tuple[str, Message]]:
        """Yield replies that have come, each once, and wait for them no longer."""
        if waiting:
            for reply in self._patiently(lambda: list(self.grid.pull_messages(list(waiting))), end) or ():
                name = waiting.pop(reply.metadata.reply_to_message_id, None)
                if name is not None:
                    yield name, reply

    def _patiently(self, call: Callable[[], Any], end: float) -> Any:
        """Call the SuperLink; where it cannot be reached, try again until the time is up."""
        while True:
            try:
                return call()
            except Exception as error:  # Flower's own, of many kinds; what it says may quote a message
                self.on_event(f"the SuperLink did not answer ({type(error).__name__})")
                if time.monotonic() >= end:
                    return None
                time.sleep(1.0)

    def _note_error(self, name: str, reply: Message) -> None:
        code = reply.error.code if reply.has_error() else "no bytes"
        self.on_event(f"site {name}: Flower brought no answer (code {code})")


app = ServerApp()
"""What ``flwr run`` starts in a deployment that ships apps; see `dpsep.federated.flower_link` for ours."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit as the run's configuration says: ``config`` is the path of a server's TOML file."""
    from dpsep.federated.serve import serve

    serve(str(context.run_config["config"]), grid)
