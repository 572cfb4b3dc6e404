"""Facts that hold for a time, from Python: the same as the command `mem0audit facts`.

from mem0audit import facts

facts.remember("alice", "employer", "Contoso", valid_from="2026-10-01", source="mail of 3 May")
for fact in facts.current("alice"):
    print(fact.attribute, fact.value)

Of one subject's attribute there is one value at any second; a new one ends the one before where it begins, and nothing
is overwritten. Times are seconds since 1970 (UTC), or text as the command takes it; `now` is the present moment unless
it is given. The install is `install` (see `mem0audit.locate`), or what `history` and the other paths name: each has
facts of its own, in mem0audit's ledger. Raises errors of `mem0audit.core.errors`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mem0audit.core.model import Install
    from mem0audit.core.validity import Fact
    from mem0audit.install.host import Host

__all__ = ["as_of", "current", "history", "remember", "revoke"]

Moment = float | int | str


class Where(TypedDict, total=False):
    """Whose facts: an install, or the paths that name one."""

    install: Install | None
    history: str | None
    qdrant_path: str | None
    qdrant_url: str | None
    collection: str | None
    config: str | None


def remember(
    subject: str,
    attribute: str,
    value: str,
    *,
    valid_from: Moment | None = None,
    source: str | None = None,
    memory_id: str | None = None,
    now: float | None = None,
    **where: Unpack[Where],
) -> Fact:
    """Put a value down from a time on (now, unless `valid_from` says otherwise; it may be to come).

    `source` is where it is known from; `memory_id` the mem0 memory that says it: where the value before has one too,
    and the ledger keeps both, that memory is marked superseded. Raises Refused for a value that does not begin later
    than the last one, or begins before its end.
    """
    from mem0audit.core.validity import Fact
    from mem0audit.operations.facts import remember as run

    install, host = _where(where)
    at = _now(now)
    begins = at if valid_from is None else _moment(valid_from, at, end=False)
    new = Fact(subject, attribute, value, int(begins // 1), None, source, memory_id)
    return run(install, host, new, at).done.fact


def current(
    subject: str, attribute: str | None = None, *, now: float | None = None, **where: Unpack[Where]
) -> tuple[Fact, ...]:
    """What holds now of a subject: every attribute, or the one; () where nothing does. It is `as_of` now."""
    return as_of(_now(now), subject, attribute, now=now, **where)


def as_of(
    at: Moment,
    subject: str | None = None,
    attribute: str | None = None,
    *,
    now: float | None = None,
    **where: Unpack[Where],
) -> tuple[Fact, ...]:
    """What holds at a time, of one subject or of all. A date as text is its end."""
    from mem0audit.operations.facts import as_of as run

    install, host = _where(where)
    return run(install, host, _moment(at, _now(now), end=True), subject, attribute)


def revoke(
    subject: str,
    attribute: str,
    *,
    at: Moment | None = None,
    now: float | None = None,
    **where: Unpack[Where],
) -> Fact:
    """End a value (now, or at another time after its start) and keep it in the history; the fact with its end.

    A value that is planned after it stays, and begins when it was to. Raises Refused where there is no value, where it
    is over already, and for a time at or before its start.
    """
    from dataclasses import replace

    from mem0audit.operations.facts import apply_revoke, plan_revoke

    install, host = _where(where)
    moment = _now(now)
    ends = moment if at is None else _moment(at, moment, end=False)
    plan = plan_revoke(install, host, subject, attribute, ends, moment)
    done = apply_revoke(install, host, plan, moment)
    return replace(done.fact, valid_to=done.at)


def history(
    subject: str | None = None, attribute: str | None = None, **where: Unpack[Where]
) -> tuple[Fact, ...]:
    """Every value there ever was, and those planned, in order."""
    from mem0audit.operations.facts import history as run

    install, host = _where(where)
    return run(install, host, subject, attribute)


def _now(now: float | None) -> float:
    return time.time() if now is None else float(now)


def _moment(at: Moment, now: float, *, end: bool) -> float:
    from mem0audit.core.errors import UsageProblem
    from mem0audit.core.given import FORMS, moment

    if not isinstance(at, str):
        return float(at)
    try:
        return moment(at, now, end=end)
    except ValueError:
        raise UsageProblem(f"{at}: no time", f"give {FORMS}") from None


def _where(where: Where) -> tuple[Install, Host]:
    from mem0audit import locate
    from mem0audit.install.host import this_host

    paths = {key: value for key, value in where.items() if key != "install"}
    install = where.get("install")
    if install is None:
        install = locate(**paths)  # type: ignore[arg-type]
    return install, this_host()
