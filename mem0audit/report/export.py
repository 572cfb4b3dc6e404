"""What `export` writes: JSON, one object a line, ASCII."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from mem0audit.core.model import HistoryRow
from mem0audit.core.points import OWNER_KEYS
from mem0audit.core.times import shown
from mem0audit.operations.export import Exported, Point
from mem0audit.report.escape import without_surrogates
from mem0audit.report.facts import value_json
from mem0audit.report.json import SCHEMA, not_checked
from mem0audit.report.ledger import fact_json


def export_lines(found: Exported) -> str:
    """A line that says what it is; one for each memory with its history, also deleted ones; one for each row that a
    migration left, message, entity and fact; a last one with the counts."""
    return "".join(_line(one) for one in _lines(found))


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(without_surrogates(value), ensure_ascii=True, allow_nan=False) + "\n"


def _lines(found: Exported) -> Iterator[dict[str, Any]]:
    yield {
        "schema": SCHEMA,
        "kind": "export",
        "scope": dict(found.scope.named),
        "made_at": shown(found.made_at),
        "history": found.install.history.value,
        "vectors": None
        if (store := found.install.vectors or found.install.server_url) is None
        else store.value,
    }
    rows: dict[str, list[HistoryRow]] = defaultdict(list)
    for row in found.history:
        rows[str(row.memory_id)].append(row)
    points: dict[str, list[Point]] = defaultdict(list)
    for point in found.points:
        points[point.id].append(point)
    for memory_id in found.ids:
        owner, fact = found.owners.get(memory_id), found.ledger.get(memory_id)
        yield {
            "kind": "memory",
            "id": memory_id,
            "stored": [_point(point) for point in points.get(memory_id, ())],
            "history": [_row(row) for row in rows.get(memory_id, ())],
            "owner_in_ledger": None if owner is None else dict(zip(OWNER_KEYS, owner, strict=True)),
            "ledger": None if fact is None else fact_json(memory_id, fact, found.made_at),
        }
    for left in found.stranded:
        yield {
            "kind": "left by a migration",
            "table": left.table,
            "memory_id": left.memory_id,
            "texts": left.texts,
        }
    for message in found.messages:
        yield {"kind": "message", **{k: _plain(v) for k, v in message._asdict().items() if k != "rowid"}}
    for entity in found.entities:
        yield {"kind": "entity", "id": entity.id, **_point(entity)}
    for told in found.facts:
        yield {"kind": "fact", **value_json(told)}
    yield {
        "kind": "end",
        "memories": len(found.points),
        "history": len(found.history),
        "left_by_a_migration": len(found.stranded),
        "messages": len(found.messages),
        "entities": len(found.entities),
        "facts": len(found.facts),
        "not_read": [not_checked(one) for one in found.not_read],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "collection": point.collection,
        "payload": {str(k): _plain(v) for k, v in point.payload.items()},
        "vector": {"dims": point.vector.dims, "names": list(point.vector.names)},
    }


def _row(row: HistoryRow) -> dict[str, Any]:
    return {key: _plain(value) for key, value in row._asdict().items() if key != "rowid"}


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.hex() if isinstance(value, bytes) else str(value)
