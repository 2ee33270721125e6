"""The transport over Flower, against a grid that misbehaves."""

from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpsep[federated]'")

from flwr.app import Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

from dpsep.federated import flower_message, flower_server
from dpsep.federated.flower_client import reply
from dpsep.federated.flower_message import ASK, NAME, content, payload, seconds
from dpsep.federated.flower_server import FlowerTransport


class Echo:
    """A site that repeats what it is asked."""

    name = "a"

    def answer(self, question: bytes) -> bytes:
        if question == b"raise":
            raise ValueError("cell 'secret' is no number")
        return b"answer to " + question


class Grid:
    """Nodes in this process: each answers at once, unless a test says otherwise."""

    def __init__(self, *nodes: NodeInfo) -> None:
        self.nodes = list(nodes)
        self.names = {node.node_id: f"{'abc'[place]}" for place, node in enumerate(nodes)}
        self.pushed: dict[str, Message] = {}
        self.dumb: set[int] = set()
        self.broken: dict[int, Error] = {}
        self.twice = False
        self.failures = 0
        self.old: list[Message] = []

    def get_nodes(self) -> list[NodeInfo]:
        return self.nodes

    def push_messages(self, messages: Any) -> list[str]:
        numbers = []
        for message in messages:
            numbers.append(f"message {len(self.pushed)}")
            message.metadata.__dict__["_message_id"] = numbers[-1]
            self.pushed[numbers[-1]] = message
        return numbers

    def pull_messages(self, numbers: Any) -> list[Message]:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no SuperLink")
        found = list(self.old)
        for number in numbers:
            message = self.pushed[number]
            node = message.metadata.dst_node_id
            if node in self.dumb:
                continue
            if node in self.broken:
                found.append(Message(self.broken[node], reply_to=message))
                continue
            answer = reply(message, Echo, self.names[node])
            found += [answer, answer] if self.twice else [answer]
        return found


def node(number: int, key: bytes = b"", status: str = "online") -> NodeInfo:
    return NodeInfo(node_id=number, public_key=key, status=status)


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    monkeypatch.setattr(flower_server, "PAUSE", 0.001)
    monkeypatch.setattr(flower_server, "INTRODUCTION", 0.05)


def transport(grid: Any, names: Any = ("a", "b"), **options: Any) -> FlowerTransport:
    events: list[str] = []
    made = FlowerTransport(grid, names, patience=0.2, on_event=events.append, **options)
    made.events = events  # pyright: ignore[reportAttributeAccessIssue]
    return made


def test_each_site_gets_its_question_and_its_answer_comes_back() -> None:
    made = transport(Grid(node(1), node(2)))
    assert made.sites() == ("a", "b")
    assert made.ask({"a": b"1", "b": b"2"}, 1.0) == {"a": b"answer to 1", "b": b"answer to 2"}
    assert made.traffic[-1][:5] == (b"1", 2, 2, 2, 22)


def test_a_site_that_is_silent_has_no_answer() -> None:
    grid = Grid(node(1), node(2))
    made = transport(grid)
    grid.dumb = {2}
    assert made.ask({"a": b"1", "b": b"2"}, 0.05) == {"a": b"answer to 1"}


def test_a_late_answer_is_not_taken_for_one_to_a_later_question() -> None:
    grid = Grid(node(1), node(2))
    made = transport(grid)
    grid.dumb = {2}
    made.ask({"b": b"first"}, 0.02)
    late = next(message for message in grid.pushed.values() if payload(message) == b"first")
    grid.old = [reply(late, Echo, "b")]
    assert made.ask({"b": b"second"}, 0.05) == {}
    grid.dumb = set()
    assert made.ask({"b": b"third"}, 0.05) == {"b": b"answer to third"}


def test_an_answer_that_comes_twice_is_one() -> None:
    grid = Grid(node(1), node(2))
    grid.twice = True
    made = transport(grid)
    assert made.ask({"a": b"1"}, 1.0) == {"a": b"answer to 1"}
    assert made.traffic[-1].received == len(b"answer to 1")


def test_a_node_with_another_key_is_no_site_whatever_name_it_gives() -> None:
    grid = Grid(node(7, b"stranger"), node(2, b"key of b"))
    grid.names = {7: "a", 2: "b"}
    made = transport(grid, None, keys={"a": b"key of a", "b": b"key of b"})
    assert made.nodes == {"b": 2}
    assert made.ask({"a": b"1", "b": b"2"}, 0.05) == {"b": b"answer to 2"}
    assert {message.metadata.dst_node_id for message in grid.pushed.values()} == {2}
    assert "no node of a" in made.events[0]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_site_that_starts_anew_under_another_number_is_found() -> None:
    grid = Grid(node(1), node(2))
    made = transport(grid)
    grid.dumb = {2}
    assert made.ask({"b": b"1"}, 0.02) == {}
    grid.nodes.append(node(3))
    grid.names[3] = "b"
    assert made.ask({"b": b"1"}, 1.0) == {"b": b"answer to 1"}
    assert made.nodes["b"] == 3


def test_a_node_that_is_gone_and_comes_back_within_the_time_is_asked_again() -> None:
    grid = Grid(node(1, b"key"))
    made = transport(grid, None, keys={"a": b"key"})
    grid.broken = {1: Error(code=5, reason="gone, and this text may hold anything")}
    pulled = grid.pull_messages

    def back(numbers: Any) -> list[Message]:
        found = pulled(numbers)
        grid.broken = {}
        return found

    grid.pull_messages = back
    assert made.ask({"a": b"1"}, 5.0) == {"a": b"answer to 1"}
    told = " ".join(made.events)  # pyright: ignore[reportAttributeAccessIssue]
    assert "code 5" in told
    assert "anything" not in told


def test_a_superlink_that_is_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_server.time, "sleep", lambda _: None)
    grid = Grid(node(1))
    made = transport(grid, ("a",))
    grid.failures = 2
    assert made.ask({"a": b"1"}, 5.0) == {"a": b"answer to 1"}


def test_an_answer_that_is_too_long_or_no_bytes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = transport(Grid(node(1)), ("a",))
    monkeypatch.setattr(flower_message, "LONGEST", 5)
    assert made.ask({"a": b"1"}, 0.05) == {}
    assert payload(Message(RecordDict(), dst_node_id=1, message_type=ASK)) is None


def test_sites_must_be_known_by_name_or_key() -> None:
    with pytest.raises(ValueError, match="nothing else says who takes part"):
        FlowerTransport(Grid(), None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no key for b"):
        FlowerTransport(Grid(), ("a", "b"), keys={"a": b"key"})  # pyright: ignore[reportArgumentType]


def test_a_site_never_tells_what_went_wrong_and_its_name_needs_no_record() -> None:
    def opened() -> Echo:
        raise AssertionError("the site was opened to say its name")

    question = Message(content(b""), dst_node_id=1, message_type=NAME)
    assert payload(reply(question, opened, "a")) == b"a"
    question = Message(content(b"raise"), dst_node_id=1, message_type=ASK)
    answer = reply(question, Echo, "a")
    assert payload(answer) == b""
    assert not answer.has_error()
    assert seconds(answer) is None
    assert seconds(reply(question, Echo, "a", timing=True)) is not None
