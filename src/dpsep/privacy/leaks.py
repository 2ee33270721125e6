"""Warnings about what a call gives away, raised from its structure and never from values in the data."""

import warnings


class PrivacyLeakWarning(UserWarning):
    """Something outside the guarantee depends on records, or weakens it; the message says what to do."""


class PrivacyLeakError(ValueError):
    """The same, where the user asked for `strict`."""


def warn_leak(message: str, *, strict: bool) -> None:
    """Warn of a leak, or refuse under `strict`."""
    if strict:
        raise PrivacyLeakError(message)
    warnings.warn(message, PrivacyLeakWarning, stacklevel=4)
