"""What a command says when it cannot go on: one line for a user's mistake, and the exit code.

**Privacy.** A message of ours speaks of names, types, shapes, paths and declared values. A message that comes
from somewhere else (a converter that quotes the cell it choked on) may hold a record, so it is never shown:
the kind of error is, and the whole of it only with ``--debug``.
"""

import dis
import errno
import os
import sys
import traceback
from typing import NoReturn

__all__ = ["DONE", "FAILED", "WRONG", "CallError", "explain", "leave"]

DONE, FAILED, WRONG = 0, 1, 2
"""Exit codes: done; the work failed; the call was wrong."""

OURS = ("dpsep", "dpsep_lab")
"""Packages whose messages are known to hold no record."""


class CallError(Exception):
    """A call that cannot be served as it stands; the message says what to change."""


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an error and the line to print.

    Examples
    --------
    >>> explain(CallError("there is no column 'agee'"))
    (2, "there is no column 'agee'")
    >>> try:
    ...     float("a secret cell")
    ... except ValueError as error:
    ...     code, line = explain(error)
    >>> code, "secret" in line
    (1, False)
    """
    if isinstance(error, KeyboardInterrupt):
        return FAILED, "interrupted."
    ours = type(error).__module__.split(".")[0] in OURS
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        if not ours and error.filename is not None:
            reason = f"{os.fsdecode(error.filename)}: {reason}"
        return WRONG, reason
    if ours or (isinstance(error, ValueError | ImportError) and _raised_here(error)):
        return WRONG, " ".join(str(error).split())
    return FAILED, (
        f"something went wrong that should not have ({type(error).__name__}). "
        "'dpsep --debug ...' or DPSEP_DEBUG=1 shows where; that text may quote data, so read it before you "
        "pass it on."
    )


def leave(error: BaseException, *, debug: bool) -> NoReturn:
    """Print what went wrong to standard error and exit."""
    code, line = explain(error)
    if debug or os.environ.get("DPSEP_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    print(f"dpsep: error: {line}", file=sys.stderr)
    raise SystemExit(code)


def is_broken_pipe(error: BaseException) -> bool:
    """Say whether the reader of our output went away, which is no error of ours."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _raised_here(error: BaseException) -> bool:
    """Say whether a ``raise`` statement of this package made the error.

    The innermost line being ours is not enough: ``float(cell)`` on it raises from C, and quotes the cell.
    """
    place = error.__traceback__
    if place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    ours = str(place.tb_frame.f_globals.get("__name__", "")).split(".")[0] in OURS
    return ours and place.tb_frame.f_code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]
