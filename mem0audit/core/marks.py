"""What is known of each snapshot beside itself: when it was last verified, and whether it is to be kept.

One small file of ours in the snapshots' folder; nothing inside a snapshot ever changes. Each entry is bound to the
snapshot by the SHA-256 of its manifest, which names every other file, so that it never speaks of another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mem0audit.core.snapshot import NAME
from mem0audit.core.times import instant

MARKS: Final = ".mem0audit-marks.json"
KIND: Final = "mem0audit-marks"
FORMAT: Final = 1
DEPTHS: Final = ("quick", "default", "deep")
LONGEST_REASON: Final = 200

_SHA: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class NotMarks(Exception):
    """The file does not say what a file of marks says; one line."""


@dataclass(frozen=True)
class Checked:
    """The last verdict of `snapshot verify`. `at` is text (UTC), `problem` the first thing that was wrong.

    A quick look that finds nothing is no verdict. `manifest_sha256` is None where the manifest could not be read.
    """

    at: str
    depth: str
    good: bool
    problem: str | None
    manifest_sha256: str | None


@dataclass(frozen=True)
class Kept:
    """A mark of `snapshot keep`: `expire` leaves this snapshot alone. `at` is text (UTC)."""

    at: str
    reason: str
    manifest_sha256: str


@dataclass(frozen=True)
class Mark:
    """What is known of one snapshot beside itself."""

    checked: Checked | None = None
    kept: Kept | None = None


def marks_text(marks: Mapping[str, Mark]) -> str:
    """The file: JSON, ASCII, two spaces, by name; entries that say nothing are left out."""
    said = {name: asdict(mark) for name, mark in sorted(marks.items()) if mark != Mark()}
    body = {"kind": KIND, "format": FORMAT, "snapshots": said}
    return json.dumps(body, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def parse_marks(data: bytes) -> dict[str, Mark]:
    """The file read strictly: every field, of its type, and no other. Raises NotMarks."""
    try:
        raw = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        raise NotMarks("is no JSON") from None
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        raise NotMarks("is no file of marks of mem0audit's")
    number = raw.get("format")
    if type(number) is int and number > FORMAT:
        raise NotMarks(f"has format {number}, of a newer mem0audit: this one reads format {FORMAT}")
    if type(number) is not int or number != FORMAT:
        raise NotMarks("names no format that there was")
    snapshots = raw.get("snapshots")
    if set(raw) != {"kind", "format", "snapshots"} or not isinstance(snapshots, dict):
        raise NotMarks("has other fields than a file of marks")
    return {name: _mark(name, value) for name, value in snapshots.items()}


def _mark(name: str, raw: Any) -> Mark:
    if not NAME.fullmatch(name):
        raise NotMarks("names what is no snapshot")
    fields = _fields(raw, {"checked": (dict, type(None)), "kept": (dict, type(None))})
    checked, kept = fields["checked"], fields["kept"]
    mark = Mark(
        None if checked is None else Checked(**_fields(checked, _CHECKED)),
        None if kept is None else Kept(**_fields(kept, _KEPT)),
    )
    for one in (mark.checked, mark.kept):
        if one is None:
            continue
        if instant(one.at) is None:
            raise NotMarks("holds a time that is none")
        if one.manifest_sha256 is not None and not _SHA.fullmatch(one.manifest_sha256):
            raise NotMarks("holds a digest that is none")
    if mark.checked is not None and mark.checked.depth not in DEPTHS:
        raise NotMarks("names a depth that there is not")
    return mark


_TEXT_OR_NONE = (str, type(None))
_CHECKED: Mapping[str, tuple[type, ...]] = {
    "at": (str,),
    "depth": (str,),
    "good": (bool,),
    "problem": _TEXT_OR_NONE,
    "manifest_sha256": _TEXT_OR_NONE,
}
_KEPT: Mapping[str, tuple[type, ...]] = {"at": (str,), "reason": (str,), "manifest_sha256": (str,)}


def _fields(raw: Any, types: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    if not isinstance(raw, dict) or set(raw) != set(types):
        raise NotMarks("has an entry with other fields than a mark")
    if any(type(raw[key]) not in kinds for key, kinds in types.items()):
        raise NotMarks("has a field of another type than a mark's")
    return raw
