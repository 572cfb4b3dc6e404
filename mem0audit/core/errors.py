"""Errors that reach a user as one line: what is wrong, where, and what to do.

The class decides the exit code (design table: 2 usage, 4 refused, 5 failed, 3 could not be read).
A message never holds memory text.
"""

from __future__ import annotations


class Mem0auditError(Exception):
    """An expected failure. `message` says what and where, `hint` what to do (a command if one helps)."""

    exit_code = 5

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageProblem(Mem0auditError):
    """Flags or configuration that cannot be right."""

    exit_code = 2


class CouldNotRead(Mem0auditError):
    """Something asked for could not be read or does not exist, and that is all there is to say."""

    exit_code = 3


class Refused(Mem0auditError):
    """In use, not confirmed or unsafe."""

    exit_code = 4


class Failed(Mem0auditError):
    """Failed; the message says whether nothing changed, it was rolled back or a rerun finishes it."""

    exit_code = 5
