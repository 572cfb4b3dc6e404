"""Pages of group Q: Qdrant servers."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule

_NOT_YET = "This version audits embedded folders only. "

RULES = (
    Rule(
        code="Q951",
        name="collection-missing",
        severity=Severity.CRITICAL,
        summary="The log has live memories, and the server's collection is missing or empty.",
        comes_about="The server's volume is mounted at the wrong path, so that a new container starts empty "
        "(data belongs at /qdrant/storage); another server or collection name is configured.",
        looks_like="The server answers and does not have the collection, or has it with no points.",
        to_do=_NOT_YET
        + "Do not remove the old container or its volumes: look in them for storage/collections "
        "first, then mount that volume at /qdrant/storage.",
        planned=True,
    ),
    Rule(
        code="Q952",
        name="collection-unhealthy",
        severity=Severity.HIGH,
        summary="The collection is not green: parts of it do not answer, or have fewer copies than asked.",
        comes_about="A node is down, a disk is full, or an optimisation failed.",
        looks_like="Status yellow or red, shards that are dead, fewer replicas than configured.",
        to_do=_NOT_YET
        + "Qdrant's own GET /collections/NAME and GET /collections/NAME/cluster say which part.",
        planned=True,
    ),
    Rule(
        code="Q953",
        name="read-only-or-strict",
        severity=Severity.MEDIUM,
        summary="The server refuses what mem0 needs: writes, or filters on fields without an index.",
        comes_about="A read-only key is configured, or strict mode is on.",
        looks_like="The server answers 403, or an error about strict mode.",
        to_do=_NOT_YET + "Give the agent a key that may write, or make the indexes of Q954.",
        planned=True,
    ),
    Rule(
        code="Q954",
        name="no-owner-index",
        severity=Severity.LOW,
        summary="The server has no index on user_id, agent_id or run_id: every listing reads all points.",
        comes_about="The collection was made by an older mem0 or by something else.",
        looks_like="payload_schema of the collection lacks the three fields.",
        to_do=_NOT_YET + "mem0 makes the indexes when it opens a collection on a server; look in its log for "
        "why it did not.",
        planned=True,
    ),
    Rule(
        code="Q955",
        name="version-gap",
        severity=Severity.MEDIUM,
        summary="Client and server are further apart than Qdrant supports.",
        comes_about="One of them was upgraded alone.",
        looks_like="Another major version, or more than one minor version between them.",
        to_do=_NOT_YET + "Upgrade the one that is behind, one minor version at a time for the server.",
        planned=True,
    ),
)
