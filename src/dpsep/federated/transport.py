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
        What happens to questions of a site, by name: see `Fault`.

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
    >>> lost = lambda number, question, answer: None
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
