"""How questions travel to sites: the interface, and one that asks sites in this process.

A transport carries bytes and promises nothing: an answer may be late, lost, doubled, damaged or another
site's. `dpsep.federated.session` checks every one. `InProcess` is for tests and simulations, with faults on
demand; over a network, `dpsep.federated.flower_server` carries questions by Flower.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

Fault = Callable[[int, bytes, Callable[[], bytes]], bytes | None]
"""What happens to a question: gets its number at the site, the question, and a function that has it answered;
returns the answer as it arrives, None for none."""


class Answers(Protocol):
    """Whatever answers questions, such as a `dpsep.federated.site.Site`."""

    def answer(self, question: bytes) -> bytes:
        """Return the answer to a question."""
        ...


class Transport(Protocol):
    """Carries questions to sites.

    Examples
    --------
    >>> class Nobody:  # any class with these two methods is a transport
    ...     def sites(self):
    ...         return ()
    ...     def ask(self, questions, timeout):
    ...         return {}
    >>> transport: Transport = Nobody()
    >>> transport.ask({}, timeout=1.0)
    {}
    """

    def sites(self) -> tuple[str, ...]:
        """Return the names of the sites that can be asked."""
        ...

    def ask(self, questions: dict[str, bytes], timeout: float) -> dict[str, bytes]:
        """Send each site its question; return the answers that came within the time, unchecked."""
        ...


class InProcess:
    """Sites in this process; with faults on demand.

    Parameters
    ----------
    sites
        By name.
    faults
        What happens to questions of a site, by name: see `Fault`, and `lost`, `late`, `garbled`, `huge`,
        `repeated`.

    Attributes
    ----------
    sent, received
        Bytes of all questions and of all answers so far.
    asked
        Number of questions so far, by site.

    Examples
    --------
    >>> class Echo:
    ...     def answer(self, question):
    ...         return question
    >>> transport = InProcess({"north": Echo(), "south": Echo()}, faults={"south": lost})
    >>> transport.sites()
    ('north', 'south')
    >>> transport.ask({"north": b"a", "south": b"b"}, timeout=1.0)
    {'north': b'a'}
    """

    def __init__(self, sites: Mapping[str, Answers], faults: Mapping[str, Fault] | None = None) -> None:
        self._sites = dict(sites)
        self._faults = dict(faults or {})
        self.sent = 0
        self.received = 0
        self.asked = dict.fromkeys(self._sites, 0)

    def sites(self) -> tuple[str, ...]:
        """Return the names of the sites."""
        return tuple(self._sites)

    def ask(self, questions: dict[str, bytes], timeout: float) -> dict[str, bytes]:
        """Ask each site its question, one after another."""
        del timeout
        answers = {}
        for name, question in questions.items():
            site, number = self._sites[name], self.asked[name]
            self.asked[name] += 1
            self.sent += len(question)
            fault = self._faults.get(name)
            if fault is None:
                answer: bytes | None = site.answer(question)
            else:
                answer = fault(number, question, lambda site=site, question=question: site.answer(question))
            if answer is not None:
                self.received += len(answer)
                answers[name] = answer
        return answers


def lost(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes | None:
    """Lose the question: the site never sees it."""
    return None


def late(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes | None:
    """Let the site answer, and its answer come too late."""
    answer()
    return None


def garbled(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes | None:
    """Damage the answer: one byte in its middle."""
    found = bytearray(answer())
    found[len(found) // 2] ^= 0x55
    return bytes(found)


def huge(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes | None:
    """Answer with far too many bytes."""
    return answer() + bytes(1 << 22)


def repeated(keep: list[bytes]) -> Fault:
    """Deliver each answer one question late: the one before arrives in its place."""

    def fault(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes | None:
        keep.append(answer())
        return keep[-2] if len(keep) > 1 else None

    return fault


def at(chosen: range | tuple[int, ...], fault: Fault) -> Fault:
    """Let a fault happen to some questions of a site, by their numbers, and not to the others."""

    def sometimes(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes | None:
        return fault(number, question, answer) if number in chosen else answer()

    return sometimes
