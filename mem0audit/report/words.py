"""Numbers, sizes, times and what a place stands on, as words. Pure: the same input, the same text."""

from __future__ import annotations

from mem0audit.core import times
from mem0audit.core.advice import in_private_tmp
from mem0audit.core.model import Agent, Holder, Place


def number(value: int) -> str:
    """`12406` -> `12,406`."""
    return f"{value:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`(1, "memory", "memories")` -> `1 memory`; without `many` an s is added."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def memories(count: int) -> str:
    """`2` -> `2 memories`."""
    return plural(count, "memory", "memories")


def size(count: int) -> str:
    """Bytes as people read them, in powers of ten: `1.6 GB`."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """A duration: `1.9 s`, `0.04 s`, `2 min 05 s`."""
    if value >= 100:
        return f"{int(value) // 60} min {int(value) % 60:02d} s"
    return f"{value:.1f} s" if value >= 0.1 else f"{value:.2f} s"


def stamp(text: str) -> str:
    """A time as a store holds it, in UTC with Z where it says its offset; anything else as it is.

    Stores mix `-08:00`, `-07:00` and `+00:00` for the same instants (mem0 up to 1.0.6 wrote US/Pacific),
    so text as stored does not compare.
    """
    at = times.instant(text) if times.utc_offset(text) is not None else None
    return text if at is None else times.shown(at)


_NAMES = ("pid", "row", "rowid", "port")
_SIZES = ("size", "bytes", "free", "needed")


def evidence_value(key: str, value: str | int | float | bool | None) -> str:
    """One value of a finding's evidence, not yet escaped. A number that names something (a pid, a row)
    has no separators, so that it can be searched for."""
    last = key.rpartition(" ")[2]
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if last in _NAMES:
            return str(value)
        return size(value) if last in _SIZES else number(value)
    if isinstance(value, float):
        return f"{value:g}"
    return stamp(value)


def ground(place: Place, holders: tuple[Holder, ...] = ()) -> tuple[str, bool | None]:
    """What a place stands on, and whether it lasts: True durable, False not, None not known.

    "durable" is said only where every way to lose it was looked at: filesystem, container layer, cleaning.
    """
    filesystem = place.filesystem or "filesystem not known"
    if place.problem:
        return f"not readable: {place.problem}", None
    if not place.exists:
        return "MISSING", False
    if place.volatile:
        return f"{filesystem}, GONE AT REBOOT", False
    if place.container_layer:
        return f"{filesystem}, GONE WITH THE CONTAINER", False
    if any(in_private_tmp(place.path, holder) for holder in holders):
        return f"{filesystem}, private /tmp, GONE WHEN THE UNIT STOPS", False
    if place.cleaned:
        when = place.cleaned.when
        return f"{filesystem}, EMPTIED {'AT BOOT' if when == 'at boot' else 'AFTER ' + when}", False
    if place.volatile is None or place.container_layer is None:
        return f"{filesystem}, not known whether it lasts", None
    if place.network:
        return f"{filesystem}, network", True
    return f"{filesystem}, durable", True


def agent_words(agent: Agent, holders: tuple[Holder, ...], *, seen: bool = True) -> tuple[list[str], str]:
    """The agent as facts and a state: (["pid 812", "agent.service", "mem0ai 2.0.18"], "running").

    `seen` is False where other people's processes could not be looked at: then "none" would not be true.
    """
    facts = []
    keepers = [h for h in holders if h.how == "lock"] or list(holders)
    for holder in keepers[:3]:
        words = f"pid {holder.pid}"
        if holder.unit:
            words += f" {holder.unit}"
        elif holder.container:
            words += f" container {holder.container[:12]}"
        else:
            words += f" {_shortened(holder.command)}"
        facts.append(words)
    if len(keepers) > 3:
        facts.append(f"{len(keepers) - 3} more")
    if agent.mem0_version:
        facts.append(f"mem0ai {agent.mem0_version}")
    if agent.client_version:
        facts.append(f"qdrant-client {agent.client_version}")
    if not agent.mem0_version:
        facts.append("mem0 version not known")
    if holders:
        return facts, "running, not disturbed"
    return facts, "no process has it open" if seen else "not visible whether it runs"


def _shortened(command: str) -> str:
    return command if len(command) <= 40 else command[:39] + "…"
