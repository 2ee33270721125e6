"""What may happen to a question on its way to a site, and to the answer on its way back."""

from collections.abc import Callable

from dpsep.federated.transport import Fault


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
