"""Row by row: any difference between two databases is told, and none where there is none."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mem0audit.stores.samerows import first_difference


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    with closing(sqlite3.connect(one)) as db, db:
        db.execute('CREATE TABLE "odd ""name" (id TEXT PRIMARY KEY, point BLOB)')
        db.execute("CREATE TABLE bare (k TEXT PRIMARY KEY, v) WITHOUT ROWID")
        db.executemany('INSERT INTO "odd ""name" VALUES (?, ?)', [(str(i), b"x" * i) for i in range(50)])
        db.execute('DELETE FROM "odd ""name" WHERE id = 7')
        db.execute("INSERT INTO bare VALUES ('a', 1.5)")
        db.execute("INSERT INTO bare VALUES ('b', CAST(x'ff' AS TEXT))")  # no UTF-8
    shutil.copy(one, other)
    return one, other


def test_a_copy_is_the_same(pair: tuple[Path, Path]) -> None:
    assert first_difference(*pair) is None
    assert sorted(p.name for p in pair[0].parent.iterdir()) == ["one.sqlite", "other.sqlite"]


@pytest.mark.parametrize(
    "change",
    [
        'UPDATE "odd ""name" SET point = x\'00\' WHERE id = 49',
        'UPDATE "odd ""name" SET point = CAST(point AS TEXT) WHERE id = 3',
        'DELETE FROM "odd ""name" WHERE id = 49',
        'INSERT INTO "odd ""name" VALUES (\'new\', NULL)',
        'UPDATE "odd ""name" SET rowid = 1000 WHERE id = 49',
        "UPDATE bare SET v = 2 WHERE k = 'a'",
        "CREATE TABLE more (x)",
        "DROP TABLE bare",
        'ALTER TABLE "odd ""name" ADD COLUMN y',
    ],
)
def test_every_difference_is_told(pair: tuple[Path, Path], change: str) -> None:
    with closing(sqlite3.connect(pair[1])) as db, db:
        db.execute(change)
    for two in (pair, pair[::-1]):
        told = first_difference(*two)
        assert told is not None and not told.startswith("not read")


def test_what_does_not_read_is_no_copy(pair: tuple[Path, Path]) -> None:
    pair[1].write_bytes(b"no database at all" * 1000)
    told = first_difference(*pair)
    assert told is not None and told.startswith("not read")
