"""A point as it lies on the disk, to compare it with itself before and after mem0 wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mem0audit.core.errors import Failed
from mem0audit.core.model import CollectionInfo, FoundPoint, PointId
from mem0audit.core.repair import CHANGED_BY_REWRITE
from mem0audit.operations.stores import Served
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.pickles import PointVectors


@dataclass(frozen=True)
class Whole:
    """A point as it lies on the disk."""

    payload: Mapping[str, Any]
    vectors: PointVectors

    @classmethod
    def of(cls, store: EmbeddedStore | Served, info: CollectionInfo, point_id: PointId) -> Whole:
        """Raises Failed where there is none that reads."""
        found: FoundPoint | None = next(iter(store.find(info, point_id)), None)
        vectors = store.vectors(info, point_id)
        if found is None or found.problem is not None or vectors is None:
            raise Failed(f"{point_id} could not be read in {info.name}")
        return cls(found.payload, vectors)


def kept_of(payload: Mapping[str, Any], *besides: str) -> dict[str, Any]:
    """What of a payload an update that keeps the text leaves as it was, without these keys."""
    return {key: value for key, value in payload.items() if key not in CHANGED_BY_REWRITE | {*besides}}
