"""Group L: where the stores are, and what that place will do to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mem0audit.core import versions
from mem0audit.core.advice import in_private_tmp
from mem0audit.core.model import NotChecked, Place
from mem0audit.core.points import NO_DATA, STALE_HASH
from mem0audit.core.reading import Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding

DEFAULT_FOLDER = "/tmp/qdrant"  # noqa: S108  mem0's own default, in every release
OWN_PLACES = frozenset({"mem0's default", "environment MEM0_DIR", "working directory"})
"""How `install.candidates` names the places where this user's own mem0 would put a store."""
SNAPSHOT_FACTOR = 1.1
"""A snapshot holds both stores once; a tenth more for its own files."""


def _stores(r: Reading) -> Iterator[tuple[str, Place]]:
    """The places of the install with the word for each: vectors, history."""
    if r.vectors_place is not None:
        yield "vectors", r.vectors_place
    yield "history", r.history_place


def _unknown(code: str, place: Place) -> NotChecked:
    return NotChecked(code, f"{place.path}: {place.problem or 'what it stands on could not be found out'}")


def volatile_filesystem(r: Reading) -> Iterable[Verdict]:
    """L101: a store on a file system that lives in memory."""
    for what, place in _stores(r):
        if place.volatile is None:
            yield _unknown("L101", place)
        elif place.volatile:
            yield finding(
                "L101",
                {
                    "filesystem": place.filesystem,
                    "mounted at": place.mount_point,
                    "size": place.size_bytes if place.exists else "not there yet",
                },
                path=place.path,
                subject=what,
            )


def cleaned_directory(r: Reading) -> Iterable[Verdict]:
    """L102: a store under a directory that systemd-tmpfiles empties."""
    for what, place in _stores(r):
        if place.cleaned is not None:
            yield finding(
                "L102",
                {"cleaned": place.cleaned.when, "rule": place.cleaned.line, "in": place.cleaned.source},
                path=place.path,
                subject=what,
            )


def container_layer(r: Reading) -> Iterable[Verdict]:
    """L103: a store on the container's own writable layer."""
    for what, place in _stores(r):
        if place.container_layer:
            yield finding(
                "L103",
                {"filesystem": place.filesystem, "mounted at": place.mount_point},
                path=place.path,
                subject=what,
            )


def private_tmp(r: Reading) -> Iterable[Verdict]:
    """L104: a store lies in /tmp, and the process that has it open sees another /tmp than we do."""
    for holder in r.holders:
        for _, place in _stores(r):
            if in_private_tmp(place.path, holder):
                yield finding(
                    "L104",
                    {
                        "pid": holder.pid,
                        "command": holder.command,
                        "unit": holder.unit,
                        "container": holder.container,
                    },
                    path=place.path,
                    subject=f"pid {holder.pid}",
                )
    if r.holders_unseen is not None:
        yield NotChecked("L104", r.holders_unseen, gap=False)


def default_path(r: Reading) -> Iterable[Verdict]:
    """L105: mem0's default folder, although nothing else is wrong with it yet."""
    place = r.vectors_place
    if place is None or place.path != DEFAULT_FOLDER or place.volatile or place.cleaned is not None:
        return
    origin = r.install.vectors.decided_by if r.install.vectors is not None else None
    yield finding("L105", {"decided by": origin}, path=place.path, subject="vectors")


def store_missing(r: Reading) -> Iterable[Verdict]:
    """L106: the log has live memories, and the folder or the collection is not there.

    Silent where every memory was found in another store that shares the log: that is L108.
    """
    if r.layout is None or r.on_server:  # there it is Q951
        return
    if r.log_live_count is None:
        yield NotChecked("L106", "the log could not be read", gap=False)
        return
    if r.layout.problem is not None and r.layout.problem.kind != "missing":
        yield NotChecked("L106", f"{r.layout.path}: {r.layout.problem.detail}")
        return
    if not r.log_live_count:
        return
    both = r.comparison
    if both is not None and both.elsewhere and not both.lost:
        return
    if not r.layout.exists:
        yield finding(
            "L106",
            {"live memories in the log": r.log_live_count, "folder": "not there"},
            path=r.layout.path,
            subject="vectors",
        )
    elif r.configured is None:
        yield finding(
            "L106",
            {
                "live memories in the log": r.log_live_count,
                "collection": f"{r.install.collection.value}: not there",
                "collections there": ", ".join(c.name for c in r.layout.collections) or "none",
            },
            path=r.layout.path,
            subject=r.install.collection.value,
        )


def several_stores(r: Reading) -> Iterable[Verdict]:
    """L107: more than one store could belong to this log.

    Only what lies where this user's own mem0 would put it, and only a half: a log and a vector store
    found together are another install, which is no fault.
    """
    for other in r.candidates:
        paired = any(o.kind != other.kind and o.found_by == other.found_by for o in r.candidates)
        if other.found_by in OWN_PLACES and not paired:
            yield finding(
                "L107",
                {"found": other.found_by, "memories": other.memories},
                path=other.path,
                subject=other.kind,
                help=other.command,
            )


def shared_store(r: Reading) -> Iterable[Verdict]:
    """L108: one log serves two vector stores, or two installs keep their memories in one folder."""
    comparison = r.comparison
    if comparison is None:
        yield NotChecked("L108", "one of the two stores could not be read", gap=False)
        return
    by_path: dict[str, int] = {}
    for path in comparison.elsewhere.values():
        by_path[path] = by_path.get(path, 0) + 1
    for path, count in by_path.items():
        yield finding(
            "L108",
            {"memories of this log in it": count},
            path=path,
            subject="vectors",
            help=next((c.command for c in r.candidates if c.path == path), None),
        )
    logged = r.timeline.memories if r.timeline is not None else {}
    for other in r.memories:
        if other.configured or not other.read.rows:
            continue
        mem0_like = sum(1 for p in other.by_id.values() if not p.flags & (NO_DATA | STALE_HASH))
        if mem0_like and not any(i in logged for i in other.by_id):
            yield finding(
                "L108",
                {"memories this log does not know": mem0_like},
                path=other.info.path,
                subject=other.info.name,
            )


def network_filesystem(r: Reading) -> Iterable[Verdict]:
    """L109: SQLite and flock on a network file system."""
    for what, place in _stores(r):
        if place.network is None:
            yield _unknown("L109", place)
        elif place.network:
            yield finding(
                "L109",
                {"filesystem": place.filesystem, "mounted at": place.mount_point},
                path=place.path,
                subject=what,
            )


def wiped_at_start(r: Reading) -> Iterable[Verdict]:
    """L110: the agent's mem0 deletes the folder whenever it starts."""
    if r.vectors_place is None:
        return
    wipes = versions.wipes_folder_at_start(r.agent.mem0_version, r.install.on_disk)
    if wipes is None:
        yield NotChecked("L110", f"the agent's versions are not known: {r.agent.source}", gap=False)
    elif wipes:
        on_disk = r.install.on_disk
        yield finding(
            "L110",
            {
                "mem0": r.agent.mem0_version,
                "on_disk": "not known, mem0's default is false" if on_disk is None else on_disk,
            },
            path=r.vectors_place.path,
            subject="vectors",
        )


def readable_by_others(r: Reading) -> Iterable[Verdict]:
    """L111: other users can read the files, or replace them."""
    for what, place in _stores(r):
        if not place.exists:
            continue
        if place.readable_by_others is not None:
            yield finding("L111", {"readable": place.readable_by_others}, path=place.path, subject=what)
        if place.replaceable_parent is not None:
            yield finding(
                "L111",
                {"others may replace entries of": place.replaceable_parent},
                path=place.path,
                subject=what,
            )


def disk_nearly_full(r: Reading) -> Iterable[Verdict]:
    """L112: no durable file system of the install has room for one snapshot."""
    durable = [p for _, p in _stores(r) if p.free_bytes is not None and not p.volatile]
    sizes = [p.size_bytes for _, p in _stores(r) if p.exists and p.size_bytes is not None]
    if not durable or not sizes:
        return
    need = int(sum(sizes) * SNAPSHOT_FACTOR)
    roomiest = max(durable, key=lambda p: p.free_bytes or 0)
    if (roomiest.free_bytes or 0) < need:
        yield finding(
            "L112",
            {"free": roomiest.free_bytes, "a snapshot needs": need},
            path=roomiest.mount_point or roomiest.path,
        )


def split_lifetimes(r: Reading) -> Iterable[Verdict]:
    """L113: one store outlives what the other does not; silent where L101 or L102 say it already."""
    places = [p for _, p in _stores(r)]
    if len(places) < 2 or any(p.volatile or p.cleaned is not None for p in places):
        return
    vectors, history = places
    if vectors.container_layer is None or history.container_layer is None:
        return
    if vectors.container_layer != history.container_layer:
        short = vectors if vectors.container_layer else history
        long = history if vectors.container_layer else vectors
        yield finding(
            "L113",
            {"goes with the container": short.path, "outlives it": long.path},
            path=short.path,
        )


RULES: dict[str, RuleFunction] = {
    "L101": volatile_filesystem,
    "L102": cleaned_directory,
    "L103": container_layer,
    "L104": private_tmp,
    "L105": default_path,
    "L106": store_missing,
    "L107": several_stores,
    "L108": shared_store,
    "L109": network_filesystem,
    "L110": wiped_at_start,
    "L111": readable_by_others,
    "L112": disk_nearly_full,
    "L113": split_lifetimes,
}
