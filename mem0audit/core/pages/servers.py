"""Pages of group Q: Qdrant servers."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import Rule, commands

RULES = (
    Rule(
        code="Q951",
        name="collection-missing",
        severity=Severity.CRITICAL,
        summary="The log has live memories, and the server's collection is missing or empty.",
        comes_about="The server's volume is mounted at the wrong path, so that a new container starts empty "
        "(data belongs at /qdrant/storage); another server or collection name is configured; the collection was "
        "deleted.",
        looks_like="The server answers and does not have the collection, or has it with no points.",
        to_do="Do not remove the old container or its volumes: look in them for storage/collections "
        "first, then mount that volume at /qdrant/storage. Of a deleted collection the log still has the texts:\n"
        + commands("mem0audit recover --dry-run"),
        not_this="Every memory is in another collection or folder that shares the log: that is L108.",
    ),
    Rule(
        code="Q952",
        name="collection-unhealthy",
        severity=Severity.HIGH,
        summary="The collection is not green: parts of it do not answer, or have fewer copies than asked.",
        comes_about="A node is down, a disk is full, an optimisation failed, or copies were never made: a "
        "replication factor on a server of one node makes none.",
        looks_like="Status red, an error of the optimiser, copies of a shard that are not active or do not answer, "
        "fewer of them than the collection's replication factor.",
        to_do="Qdrant's own answers say which part:\n"
        + commands(
            "curl SERVER/collections/NAME",
            "curl SERVER/collections/NAME/cluster",
        )
        + "\nFree the disk or bring the node back; Qdrant then repairs its copies itself.",
        not_this="Yellow and grey alone are a server that indexes what was just written, and are said for information.",
    ),
    Rule(
        code="Q953",
        name="read-only-or-strict",
        severity=Severity.MEDIUM,
        summary="The server refuses what mem0 needs: writes, filters on fields without an index, or large answers.",
        comes_about="The agent's configuration holds a token that may only read, or the collection has strict mode on "
        "(managed servers switch it on).",
        looks_like="mem0's add fails with 403; its searches by metadata or its delete_all fail with an error about "
        "strict mode or rate limits. mem0 swallows some of these errors: entities then keep links to deleted memories.",
        to_do="Give the agent a key that may write. Or raise the limit, or make the index:\n"
        + commands(
            "curl -X PATCH SERVER/collections/NAME -H 'content-type: application/json' \\",
            '  -d \'{"strict_mode_config": {"enabled": false}}\'',
        ),
        threshold="An answer limit below 10,000, which is what mem0 2.2.1 asks for when it cleans entities up; every "
        "rate or size limit.",
        not_this="Whether a plain key may write cannot be seen without writing, and is not tried.",
    ),
    Rule(
        code="Q954",
        name="no-owner-index",
        severity=Severity.LOW,
        summary="The server has no index on user_id, agent_id or run_id: every listing reads all points.",
        comes_about="The collection was made by an older mem0 or by something else, or the agent's key may not make "
        "indexes: mem0 then goes on without.",
        looks_like="payload_schema of the collection lacks some of the three fields.",
        to_do="mem0 makes the indexes whenever it opens a collection on a server: start the agent once with a key that "
        "may manage the collection, or make them yourself, for each of the three:\n"
        + commands(
            "curl -X PUT SERVER/collections/NAME/index -H 'content-type: application/json' \\",
            '  -d \'{"field_name": "user_id", "field_schema": "keyword"}\'',
        ),
    ),
    Rule(
        code="Q955",
        name="version-gap",
        severity=Severity.MEDIUM,
        summary="Client and server are further apart than Qdrant supports.",
        comes_about="One of them was upgraded alone.",
        looks_like="Another major version, or more than one minor version between them; the client warns at its start.",
        to_do="Upgrade the one that is behind, one minor version at a time for the server, after a snapshot. Or keep "
        "the client at the server's version:\n" + commands("pip install 'qdrant-client>=1.16,<1.18'"),
        threshold="The same major version, and minor versions at most one apart, is what the client itself accepts.",
    ),
)
