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


class ServerProblem(CouldNotRead):
    """A Qdrant server did not do what it was asked.

    `kind` is one of KINDS; `status` the HTTP status where it answered with one.
    """

    KINDS = (
        "unreachable",  # refused, no route, no such host
        "timeout",  # no connection, or no answer, in time
        "tls",  # no trusted or no TLS connection
        "key",  # 401, or 403 without a word of what is not allowed
        "forbidden",  # 403: the key may not do this
        "missing",  # 404: no such collection, snapshot, …
        "refused",  # another 4xx: the server says what is wrong with it
        "server",  # 5xx
        "cut",  # the connection ended in the middle
        "not-qdrant",  # it answers, and not as a Qdrant server does
        "redirect",  # it sends us elsewhere, where the key must not go
        "too-large",  # more than we take in one answer
    )

    def __init__(self, kind: str, message: str, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint)
        assert kind in self.KINDS
        self.kind = kind
        self.status = status
