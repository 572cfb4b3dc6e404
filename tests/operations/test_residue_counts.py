"""What a residue report counts, against a plain search of the same stores that shares no code with it."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.residue import Residue
from mem0audit.core.scopes import Scope
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from mem0audit.operations.residue import residue
from tests.builders import STORES
from tests.operations.test_snapshot import installed


class Plain:
    """The store's rows, by SQLite and pickle alone; hers are `ids`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.history, self.vectors = (
            folder,
            folder / "mem0_dir" / "history.db",
            folder / "qdrant",
        )

    def query(self, file: Path, what: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return connection.execute(what).fetchall()

    def points(self, collection: str) -> dict[str, dict[str, Any]]:
        file = self.vectors / "collection" / collection / "storage.sqlite"
        if not file.exists():
            return {}
        rows = [pickle.loads(blob) for (blob,) in self.query(file, "SELECT point FROM points")]
        return {str(row.id): row.payload for row in rows}

    def look(self, ids: set[str]) -> None:
        memories, entities = self.points("mem0"), self.points("mem0_entities")
        log = self.query(self.history, "SELECT memory_id, old_memory, new_memory FROM history")
        tables = {n for (n,) in self.query(self.history, "SELECT name FROM sqlite_master")}
        said = (
            self.query(self.history, "SELECT session_scope, content FROM messages")
            if "messages" in tables
            else []
        )
        hers_e = {
            i
            for i, p in entities.items()
            if p.get("user_id") == "carol" or set(p["linked_memory_ids"]) <= ids
        }
        self.counts = {
            "points": sum(p["user_id"] == "carol" for p in memories.values()),
            "history": sum(bool(old or new) for i, old, new in log if i in ids),
            "messages": sum("user_id=carol" in scope for scope, _ in said),
            "entities": len(hers_e),
        }
        self.hers: set[str] = set()
        self.others: list[str] = []
        for i, p in memories.items():
            self._take(
                p["user_id"] == "carol", [p["data"], p.get("text_lemmatized")], [*map(str, p.values())]
            )
            assert (i in ids) == (p["user_id"] == "carol")
        for i, p in entities.items():
            self._take(i in hers_e, [p["data"]], [str(v) for k, v in p.items() if k != "linked_memory_ids"])
        for i, old, new in log:
            self._take(i in ids, [old, new], [old, new])
        for scope, content in said:
            self._take("user_id=carol" in scope, [content], [content])

    def _take(self, hers: bool, texts: list[Any], all_of_it: list[Any]) -> None:
        if hers:
            self.hers.update(text for text in texts if text)
        else:
            self.others += [text for text in all_of_it if text]

    def in_bytes(self, file: Path) -> tuple[int, int]:
        """At how many places texts of hers alone stand, and texts of fewer than 24 bytes, whose ever."""
        data = file.read_bytes()
        long = short = 0
        for text in self.hers:
            ways = {text.encode(), json.dumps(text)[1:-1].encode()}
            ways |= {text.encode("utf-16-le"), text.encode("utf-16-be")}
            places = sum(len(re.findall(b"(?=" + re.escape(way) + b")", data)) for way in ways)
            if len(text.encode()) < 24:
                short += places
            elif not any(text in other for other in self.others):
                long += places
        return long, short


@pytest.mark.parametrize("version", ["1.0.11", "2.2.1-nlp"])
def test_counts_equal_a_plain_search(version: str, tmp_path: Path) -> None:
    """Before mem0's own delete_all and after it, which leaves the log, the messages and what lies in the files."""
    store = Plain(tmp_path / "store")
    made, seen = STORES / version, []
    ids: set[str] = set()
    for state in (made / "pre_delete_all", made):
        shutil.rmtree(store.folder, ignore_errors=True)
        store.folder.mkdir()
        for name in ("qdrant", "mem0_dir"):
            shutil.copytree(state / name, store.folder / name)
        if not ids:
            ids = {i for i, p in store.points("mem0").items() if p["user_id"] == "carol"}
            audit(installed(store), this_host())  # the ledger sees whose they are
        store.look(ids)
        found = residue(installed(store), this_host(), scope=Scope(user="carol"))
        rows = {one.kind: one.count for one in found.rows}
        assert {kind: rows.get(kind, 0) for kind in store.counts} == store.counts
        assert {Path(f.path): (f.whole, f.short) for f in found.files} == {
            file: store.in_bytes(file)
            for file in sorted(store.folder.rglob("*"))
            if file.is_file() and _is_searched(file, found)
        }
        seen.append(
            (store.counts["points"], store.counts["history"], sum(f.whole + f.short for f in found.files))
        )
    (before, rows_before, _), (after, rows_after, whole) = seen
    assert (before, after, rows_after - rows_before) == (8, 0, 8)
    assert whole >= rows_after


def _is_searched(file: Path, found: Residue) -> bool:
    """mem0's own settings beside the log are no store."""
    return file.name != "config.json" or str(file) in {one.path for one in found.files}
