"""Snapshots of many dates, made from one that was really taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from mem0audit.core import snapshot as core


def dated(taken: Path, folder: Path, *names: str, **changes: Any) -> list[Path]:
    """Copies of a snapshot under other dates (`2026-11-29T023000Z`), with manifests that say so; `changes` are
    fields of the manifest."""
    made = []
    for name in names:
        path = folder / name
        shutil.copytree(taken, path)
        raw = json.loads((path / core.MANIFEST).read_text())
        date, _, clock = name.partition("Z")[0].partition("T")
        at = f"{date} {clock[:2]}:{clock[2:4]}:{clock[4:]}Z"
        raw.update(name=name, created_at=at, **changes)
        text = (json.dumps(raw, indent=2) + "\n").encode()
        (path / core.MANIFEST).write_bytes(text)
        (path / core.CHECKSUM).write_text(core.checksum_text(text))
        made.append(path)
    return made


def nights(count: int, month: str = "2026-10") -> list[str]:
    """Names of as many nights of a month, oldest first."""
    return [f"{month}-{day:02d}T023000Z" for day in range(1, count + 1)]
