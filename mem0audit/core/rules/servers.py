"""Group Q: what a Qdrant server does to the memories on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mem0audit.core.model import NotChecked, ServerSide, Severity
from mem0audit.core.points import OWNER_KEYS
from mem0audit.core.reading import Reading
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding

NO_SERVER = "the vector store is no Qdrant server"
OPTIMISING = frozenset({"yellow", "grey"})
"""Not green, and no fault: what was written is being indexed, or waits for it."""
MOST_ASKED = 10_000
"""What mem0 2.2.1 asks for at once when it cleans entities up (mem0/memory/main.py); memories it deletes by 1,000."""
_FULL = {
    "max_points_count": "most points",
    "max_collection_vector_size_bytes": "most bytes of vectors",
    "max_collection_payload_size_bytes": "most bytes of payloads",
    "max_payload_index_count": "most indexes",
}


def collection_missing(r: Reading) -> Iterable[Verdict]:
    """Q951: the log has live memories, and the server's collection is missing or empty.

    Silent where every memory was found in another store that shares the log: that is L108.
    """
    if not r.on_server or r.layout is None or r.layout.problem is not None:
        return
    if r.log_live_count is None:
        yield NotChecked("Q951", "the log could not be read", gap=False)
        return
    if misses_nothing(r):
        return
    name = r.install.collection.value
    if r.configured is None:
        evidence: dict[str, Any] = {
            "live memories in the log": r.log_live_count,
            "collection": f"{name}: not there",
            "collections there": ", ".join(c.name for c in r.layout.collections) or "none",
        }
        if name in r.layout.aliases:
            evidence["it is an alias of"] = r.layout.aliases[name]
        yield finding("Q951", evidence, path=r.layout.path, subject=name)
    elif not r.configured.read.rows and r.configured.read.file.problem is None:
        yield finding(
            "Q951",
            {"live memories in the log": r.log_live_count, "collection": f"{name}: no point in it"},
            path=r.configured.info.path,
            subject=name,
        )


def misses_nothing(r: Reading) -> bool:
    """Whether the log has no live memory, or every one that the server lacks was found in another store."""
    both = r.comparison
    return not r.log_live_count or (both is not None and bool(both.elsewhere) and not both.lost)


def collection_unhealthy(r: Reading) -> Iterable[Verdict]:
    """Q952: a collection is not green, or shards of it have dead or too few copies. Yellow and grey alone are for
    information: a server that digests what was written is so."""
    for collection in r.collections:
        server = collection.info.server
        if server is None:
            continue
        evidence: dict[str, Any] = {}
        if server.status != "green":
            evidence["status"] = server.status
        bad = bool(evidence) and server.status not in OPTIMISING
        faults = _faults(server)
        if evidence or faults:
            found = finding(
                "Q952",
                {**evidence, **faults},
                path=collection.info.path,
                subject=collection.info.name,
            )
            yield found if bad or faults else replace(found, severity=Severity.INFO)


def _faults(server: ServerSide) -> dict[str, Any]:
    faults: dict[str, Any] = {}
    if server.error is not None:
        faults["optimiser"] = server.error
    resting = [f"shard {one.shard} {one.state}" for one in server.copies if one.state != "Active"]
    if resting:
        faults["copies that are not active"] = ", ".join(resting)
    if server.silent is not None:
        faults["a copy does not answer"] = server.silent
    copies = Counter(one.shard for one in server.copies)
    few = [f"shard {shard} has {count}" for shard, count in copies.items() if count < server.replicas_wanted]
    if few:
        faults["copies wanted"] = server.replicas_wanted
        faults["fewer than that"] = ", ".join(few)
    return faults


def read_only_or_strict(r: Reading) -> Iterable[Verdict]:
    """Q953: strict mode refuses what mem0 asks for, or the agent's own key may only read.

    Whether a key that says nothing of itself may write is not asked: asking would be a write.
    """
    if not r.on_server or r.layout is None or r.layout.problem is not None:
        return
    agents = r.install.server_key_from is not None and r.install.server_key_from == r.install.config_file
    if r.layout.read_only_key and agents:
        yield finding(
            "Q953", {"key": "a token that may only read"}, path=r.install.config_file, subject="api_key"
        )
    for collection in r.collections:
        server = collection.info.server
        limits = _limits(server.strict) if server is not None else {}
        if limits:
            yield finding(
                "Q953",
                {"strict mode": "on", **limits},
                path=collection.info.path,
                subject=collection.info.name,
            )
    if not r.layout.read_only_key:
        yield NotChecked("Q953", "whether the agent's key may write: to ask would be to write", gap=False)


def _limits(strict: Any) -> dict[str, Any]:
    """The limits of strict mode that stop mem0, sooner or later."""
    limits: dict[str, Any] = {}
    if strict.get("unindexed_filtering_retrieve") is False:
        limits["filters on fields without an index"] = "refused, as on all metadata but the owner"
    most = strict.get("max_query_limit")
    if isinstance(most, int) and most < MOST_ASKED:
        limits["most results at once"] = most
        limits["mem0 asks for up to"] = MOST_ASKED
    for key, words in (("read_rate_limit", "reads a minute"), ("write_rate_limit", "writes a minute")):
        if strict.get(key) is not None:
            limits[words] = strict[key]
    for key, words in _FULL.items():
        if strict.get(key) is not None:
            limits[words] = strict[key]
    return limits


def no_owner_index(r: Reading) -> Iterable[Verdict]:
    """Q954: no payload index on the fields that mem0 filters by."""
    server = None if r.configured is None else r.configured.info.server
    if r.configured is None or server is None:
        return
    missing = [key for key in OWNER_KEYS if key not in server.indexed]
    if missing:
        yield finding(
            "Q954",
            {"without an index": ", ".join(missing), "points": server.points},
            path=r.configured.info.path,
            subject=r.configured.info.name,
        )


def version_gap(r: Reading) -> Iterable[Verdict]:
    """Q955: the agent's qdrant-client and the server are not of the same major, or over one minor version apart."""
    if not r.on_server or r.layout is None or r.layout.problem is not None:
        return
    server, client = _version(r.layout.version), _version(r.agent.client_version)
    if server is None:
        yield NotChecked("Q955", "the server does not say its version", gap=False)
    elif client is None:
        yield NotChecked("Q955", f"the agent's versions are not known: {r.agent.source}", gap=False)
    elif server[0] != client[0] or abs(server[1] - client[1]) > 1:
        yield finding(
            "Q955",
            {"server": r.layout.version, "agent's qdrant-client": r.agent.client_version},
            path=r.layout.path,
            subject="versions",
        )


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", text or "")
    return None if found is None else (int(found[1]), int(found[2]))


RULES: dict[str, RuleFunction] = {
    "Q951": collection_missing,
    "Q952": collection_unhealthy,
    "Q953": read_only_or_strict,
    "Q954": no_owner_index,
    "Q955": version_gap,
}
