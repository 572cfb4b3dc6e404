"""Sealing: puts the state of both stores to the chain, when nothing in it is unexplained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from mem0audit.core.model import Finding, Install, NotChecked, SealOutcome, Severity
from mem0audit.core.reading import Reading
from mem0audit.core.rules import RULES
from mem0audit.core.rules.divergence import standing_key
from mem0audit.core.seal import NO_SEAL, LastSeal, Seal, Sealing
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.look import Progress, look, no_collector, no_progress
from mem0audit.stores.ledger import CannotUse, Ledger

LOOKS = 6
"""So often a live install is looked at, until no write was in flight between its two stores."""
PAUSE_S = 0.5
NOT_STILL = "the agent did not hold still: take it at a quieter minute"
MOST_NAMES = 1_000
"""So many findings are let stand by name; of more, their number."""

_IN_FLIGHT = ("D301", "D302", "D303", "D304", "D306", "D310")
"""What a write in flight looks like."""
_NAMED = ("D", "H", "E", "I", "C")


def seal_install(
    ledger: Ledger,
    install: Install,
    host: Host,
    *,
    accept: str | None = None,
    progress: Progress = no_progress,
    pause: Callable[[float], None] = time.sleep,
) -> SealOutcome:
    """Seals both stores as they are now, beside the running agent. `accept` is the reason to let stand what nothing
    explains. Raises nothing: what kept it from being done is in the outcome."""
    sealing = ledgers.sealing_of(ledger)
    if isinstance(sealing, NotChecked):
        return SealOutcome(False, sealing.why)
    reading = settled_look(install, host, sealing, progress, pause)
    if reading is None:
        return SealOutcome(False, NOT_STILL)
    return seal_reading(ledger, sealing, reading, host.now, accept=accept)


def settled_look(
    install: Install,
    host: Host,
    sealing: Sealing,
    progress: Progress,
    pause: Callable[[float], None] = time.sleep,
) -> Reading | None:
    """A look during which no row came, and that found no difference which was not there half a second before."""
    before: set[tuple[object, ...]] | None = None
    path = install.history.value
    for _ in range(LOOKS):
        ends = ledgers.ends_of_log(path, host)
        with no_collector():
            reading = look(install, host, progress, sealing)
            found = {standing_key(f) for f in _found(reading, _IN_FLIGHT)}
        last = None if reading.sealed_rows is None else reading.sealed_rows.last
        still = last == (None if ends is None else ends[1])
        if still and (not reading.live or not found or found == before):
            return reading
        before, path = (
            found,
            reading.history_path,
        )  # where the agent's private /tmp has it, the first look found out
        pause(PAUSE_S)
    return None


def _found(reading: Reading, codes: Sequence[str]) -> list[Finding]:
    return [v for code in codes for v in RULES[code](reading) if isinstance(v, Finding)]


def seal_reading(
    ledger: Ledger,
    sealing: Sealing,
    reading: Reading,
    now: float,
    *,
    accept: str | None = None,
    settled: bool = True,
) -> SealOutcome:
    """Puts the state of a settled reading to the chain, when nothing in it is unexplained or `accept` says why not.

    One that is not `settled` is never sealed: a write was in flight between its two stores. `now` is in seconds since
    1970. The first seal lets stand what was found before, by name. Raises nothing.
    """
    last = sealing.last
    if isinstance(last, NotChecked) and last != NO_SEAL:
        return SealOutcome(False, f"{last.why} (moved away, it is begun anew)")
    newest = last.seal if isinstance(last, LastSeal) else None
    reading = replace(reading, last_seal=last, recovered=ledgers.recovered(ledger))
    state = reading.state()
    if state is None:
        return SealOutcome(False, "both stores could not be read whole")
    if not settled:
        return _outcome(newest, why="the pair is not settled")
    check = reading.seal_check
    if check is not None and check.unexplained and accept is None:
        if check.reset:
            return _outcome(
                newest, why=f"since seal {check.seal.number} mem0 was reset, or both stores replaced"
            )
        names = check.names()
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        return _outcome(newest, why=f"since seal {check.seal.number} nothing explains {names[0]}{more}")
    if newest is not None and accept is None and newest.state == state.digest():
        return replace(_outcome(newest), unchanged=True)
    names = check.names() if check is not None else _names(reading)
    try:
        made = ledger.add_seal(state, now, "seal", after=newest, accepted=_capped(names), reason=accept)
    except CannotUse as error:
        return _outcome(newest, why=f"the ledger {error.why}")
    return _outcome(made, extended=True)


def _names(reading: Reading) -> tuple[str, ...]:
    codes = [code for code in RULES if code.startswith(_NAMED)]
    found = [f for f in _found(reading, codes) if f.severity > Severity.INFO]
    return tuple(f"{f.code} {f.memory_id or f.subject or f.path or ''}".rstrip() for f in found)


def _capped(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) <= MOST_NAMES:
        return names
    return (*names[:MOST_NAMES], f"and {len(names) - MOST_NAMES:,} more")


def _outcome(seal: Seal | None, *, extended: bool = False, why: str | None = None) -> SealOutcome:
    if seal is None:
        return SealOutcome(extended, why)
    accepted = seal.accepted if extended else ()
    return SealOutcome(extended, why, seal.number, seal.at, accepted, memories=seal.memories, rows=seal.rows)


def explain(
    install: Install,
    host: Host,
    kind: str,
    detail: str,
    *,
    ledger: bool = True,
    progress: Progress = no_progress,
) -> SealOutcome | None:
    """Puts an entry to the chain that explains what we did ourselves to both stores, so that the next audit does not
    take it for somebody else's doing. None where there is no chain yet, and so nothing to explain.

    Call it when the operation is done and before anybody else can write (with both locks held). `kind` is one word
    ("restore"), `detail` one line without memory text ("snapshot 2026-11-29T023000Z"). Where the state is one that
    an earlier seal has, nothing is let stand with it; where it is not (the snapshot was taken when its seal was
    refused, or before the first), what differs from the last seal is recorded by name in `accepted`. Raises nothing.
    """
    with ledgers.opened(install, host, wanted=ledger) as book:
        if book is None or isinstance(book, NotChecked):
            return None
        sealing = ledgers.sealing_of(book)
        if isinstance(sealing, NotChecked):
            return SealOutcome(False, sealing.why)
        last = sealing.last
        if not isinstance(last, LastSeal):
            return None if last == NO_SEAL else SealOutcome(False, last.why)
        with no_collector():
            reading = look(install, host, progress, sealing)
        state, check = reading.state(), reading.seal_check
        if state is None or check is None:
            return _outcome(last.seal, why="both stores could not be read whole")
        if (last.seal.kind, last.seal.reason, last.seal.state) == (kind, detail, state.digest()):
            return _outcome(last.seal, extended=True)  # by a run that was cut off after it
        try:
            known = {seal.state for seal in book.seals()}
            accepted = () if state.digest() in known else _capped(check.names())
            made = book.add_seal(state, host.now, kind, after=last.seal, accepted=accepted, reason=detail)
        except CannotUse as error:
            return _outcome(last.seal, why=f"the ledger {error.why}")
        return _outcome(made, extended=True)
