"""Snapshots as they lie there: list them, show one, verify one. Nothing is changed."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Literal

from mem0audit import __version__
from mem0audit.core import snapshot as core
from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import Install, NotChecked
from mem0audit.core.snapshot import Listed, Manifest, NotAManifest, SnapshotProblem, Verdict
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host
from mem0audit.operations.copied import agent_of, counted, counts, digests, install_of, judged
from mem0audit.operations.look import Progress, look_at_copy, no_progress
from mem0audit.stores import files, snapshots

Depth = Literal["quick", "default", "deep"]

NO_SERVER = (
    "they are in a Qdrant server's own format: name a server to put them onto for a look with --qdrant-url"
)


# --- List and show -------------------------------------------------------------------------------


def list_snapshots(folder: str) -> tuple[Listed, ...]:
    """The snapshots in a folder, newest first, by their manifests alone. Raises CouldNotRead."""
    where = Path(folder)
    try:
        found = snapshots.names(where)
    except FileNotFoundError:
        raise CouldNotRead(f"{folder}: there is no such folder") from None
    except OSError as error:
        raise CouldNotRead(f"{folder}: {(error.strerror or 'cannot be read').lower()}") from None
    return tuple(_listed(where / name) for name in reversed(found))


def _listed(path: Path) -> Listed:
    manifest, problems = _read_manifest(path)
    if problems:
        return Listed(path.name, str(path), None, f"{problems[0].path} {problems[0].detail}")
    return Listed(path.name, str(path), manifest)


def show_snapshot(folder: str | None, name: str) -> Listed:
    """One snapshot, by name in the folder or by its path. Raises CouldNotRead where there is none or its
    manifest does not read."""
    found = _listed(_one(folder, name))
    if found.manifest is None:
        raise CouldNotRead(
            f"{found.path}: {found.problem}", f"mem0audit snapshot verify {shell_word(found.path)}"
        )
    return found


def _one(folder: str | None, name: str) -> Path:
    path = Path(name)
    if "/" not in name and folder is not None and (core.NAME.fullmatch(name) or not path.is_dir()):
        path = Path(folder, name)
    if not path.is_dir():
        there = f"all of them: mem0audit snapshot list --to {shell_word(str(path.parent))}"
        hint = there if path.parent.is_dir() else "which folders hold snapshots: mem0audit status"
        raise CouldNotRead(f"{path}: there is no such snapshot", hint)
    return path


# --- Verify ----------------------------------------------------------------------------------------


class NoSnapshot(CouldNotRead):
    """A folder that is no snapshot of ours and holds none; it may be a backup of somebody else's. `path` is it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no snapshot lies there")
        self.path = path


def find_snapshots(folder: str | None, name: str | None) -> tuple[str, ...]:
    """The paths of the snapshots that are meant: one by its name or path, or all that lie in a folder.

    Raises NoSnapshot for a folder without any, CouldNotRead.
    """
    if name is not None:
        path = _one(folder, name)
        if os.path.lexists(path / core.MANIFEST) or core.NAME.fullmatch(path.name):
            return (str(path),)
    else:
        assert folder is not None
        path = Path(folder)
    try:
        found = snapshots.names(path)
    except OSError as error:
        raise CouldNotRead(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    if not found:
        raise NoSnapshot(str(path))
    return tuple(str(path / one) for one in found)


def verify(
    path: str,
    depth: Depth = "default",
    progress: Progress | None = None,
    server: tuple[Install, Host] | None = None,
) -> Verdict:
    """Whether a snapshot holds what its manifest says. Changes nothing.

    "quick" looks at the manifest's checksum, names and sizes; "default" at every byte (SHA-256), SQLite's
    integrity_check, and both stores as a pair: counts, digests and findings; "deep" besides puts both into a
    scratch folder as a restore would, opens them in the journal mode they had, and audits them there.

    Of a snapshot whose points lay on a Qdrant server, "default" proves the server's own files by their checksums and
    reads the log; "deep" puts the collections onto `server` (an install that names one) under scratch names, reads and
    audits them there, and removes them. Raises CouldNotRead where the folder itself cannot be read.
    """
    say = progress or no_progress
    started = time.monotonic()
    folder = Path(path)
    manifest, problems = _read_manifest(folder)
    try:
        sizes, odd = snapshots.tree(folder)
    except OSError as error:
        raise CouldNotRead(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    problems += [SnapshotProblem(name, detail) for name, detail in sorted(odd.items())]
    not_checked: list[NotChecked] = []
    findings: dict[str, int] = {}
    if manifest is not None:
        problems += _names_and_sizes(manifest, sizes, folder.name)
        if depth != "quick":
            problems += _bytes(manifest, folder, sizes, say)
            if problems:
                why = "the files are not those of the manifest"
                not_checked.append(NotChecked("both stores as a pair", why))
            elif manifest.server is not None:
                say("reading the log", None, None)
                from mem0audit.operations.serververify import compare_log

                compare_log(manifest, folder, problems)
            else:
                say("reading the pair", None, None)
                findings = _compare(manifest, folder, problems, say)
        if depth == "deep" and not problems:
            if manifest.server is None:
                _restored(manifest, folder, problems, not_checked, say)
            elif server is None:
                not_checked.append(NotChecked("the points", NO_SERVER))
            else:
                from mem0audit.operations.serververify import restored_on

                findings = restored_on(*server, manifest, folder, problems, not_checked, say)
    else:
        not_checked.append(NotChecked("the files", "without a manifest it is not known what they should be"))
    return Verdict(
        name=folder.name,
        path=path,
        depth=depth,
        manifest=manifest,
        problems=tuple(problems),
        not_checked=tuple(not_checked),
        seconds=time.monotonic() - started,
        findings=findings,
    )


def _small(folder: Path, name: str) -> bytes | SnapshotProblem:
    try:
        return snapshots.small_file(folder / name)
    except FileNotFoundError:
        return SnapshotProblem(name, "is missing")
    except OSError as error:
        detail = "is a link" if error.errno == errno.ELOOP else (error.strerror or "cannot be read").lower()
        return SnapshotProblem(name, detail)
    except ValueError as error:
        return SnapshotProblem(name, str(error))


def _read_manifest(folder: Path) -> tuple[Manifest | None, list[SnapshotProblem]]:
    """The manifest, None where it does not read; and what is wrong with it or its checksum."""
    found = {name: _small(folder, name) for name in (core.MANIFEST, core.CHECKSUM)}
    problems = [one for one in found.values() if isinstance(one, SnapshotProblem)]
    data = {name: one for name, one in found.items() if isinstance(one, bytes)}
    text = data.get(core.MANIFEST)
    if text is None:
        return None, problems
    checksum = data.get(core.CHECKSUM)
    if checksum is not None and checksum != core.checksum_text(text).encode("ascii"):
        problems.append(SnapshotProblem(core.MANIFEST, f"is not the one that {core.CHECKSUM} was made of"))
    try:
        return core.parse_manifest(text), problems
    except NotAManifest as error:
        problems.append(SnapshotProblem(core.MANIFEST, str(error)))
        return None, problems


def _names_and_sizes(manifest: Manifest, sizes: dict[str, int], name: str) -> list[SnapshotProblem]:
    problems = []
    if core.NAME.fullmatch(name) and name != manifest.name:
        problems.append(SnapshotProblem(core.MANIFEST, f"is that of {manifest.name}"))
    listed = {file.path: file for file in manifest.files}
    for path, file in listed.items():
        if path not in sizes:
            problems.append(SnapshotProblem(path, "is missing"))
        elif sizes[path] != file.size_bytes:
            detail = f"has {sizes[path]:,} bytes, not {file.size_bytes:,}"
            problems.append(SnapshotProblem(path, detail))
    own = (core.MANIFEST, core.CHECKSUM)
    others = sorted(set(sizes) - set(listed) - set(own))
    problems += [SnapshotProblem(path, "is not in the manifest") for path in others]
    if core.HISTORY not in listed:
        problems.append(SnapshotProblem(core.MANIFEST, "lists no log"))
    return problems


def _bytes(manifest: Manifest, folder: Path, sizes: dict[str, int], say: Progress) -> list[SnapshotProblem]:
    problems = []
    for number, file in enumerate(manifest.files):
        if sizes.get(file.path) != file.size_bytes:
            continue  # said already
        say("checking every byte", number, len(manifest.files))
        path = folder / file.path
        try:
            if snapshots.digest(path)[1] != file.sha256:
                problems.append(SnapshotProblem(file.path, "its bytes are not those that were written"))
                continue
        except OSError as error:
            detail = (error.strerror or "cannot be read").lower()
            problems.append(SnapshotProblem(file.path, detail))
            continue
        if file.journal_mode is not None:
            wrong = snapshots.integrity(path)
            if wrong:
                problems.append(SnapshotProblem(file.path, f"fails integrity_check: {wrong[0]}"))
    return problems


def _compare(
    manifest: Manifest, folder: Path, problems: list[SnapshotProblem], say: Progress
) -> dict[str, int]:
    """The pair in a folder against the manifest's counts, digests and findings; adds what differs."""
    return compare(manifest, install_of(manifest, folder), problems, say)


def compare(
    manifest: Manifest, install: Install, problems: list[SnapshotProblem], say: Progress
) -> dict[str, int]:
    """The pair at an install's paths against the manifest; adds what differs and gives its findings by code."""
    reading = look_at_copy(install, agent_of(manifest), manifest.taken_at, say)
    for what, count in counts(reading).items():
        if manifest.counts.get(what) != count:
            detail = f"says {manifest.counts.get(what)} {what}, the stores hold {count}"
            problems.append(SnapshotProblem(core.MANIFEST, detail))
    points, history = digests(reading)
    if points != manifest.points_digest:
        problems.append(SnapshotProblem(core.VECTORS, "its points are not those that were counted"))
    if history != manifest.history_digest:
        problems.append(SnapshotProblem(core.HISTORY, "its rows are not those that were counted"))
    findings = counted(judged(reading))
    if manifest.versions.get("mem0audit") == __version__ and findings != manifest.findings:
        # Another version may have other rules.
        problems.append(SnapshotProblem(core.MANIFEST, "says other findings than the pair has"))
    return findings


def _restored(
    manifest: Manifest,
    folder: Path,
    problems: list[SnapshotProblem],
    not_checked: list[NotChecked],
    say: Progress,
) -> None:
    """Both stores put into a scratch folder as a restore would, and audited there."""
    try:
        with files.scratch_folder() as scratch:
            for file in manifest.files:
                say("copying into a scratch folder", None, None)
                target = scratch / file.path
                files.make_folders(target.parent)
                files.copy_into(str(folder / file.path), target)
                if file.journal_mode is not None:
                    mode = files.set_journal_mode(target, file.journal_mode)
                    if (mode == "wal") != (file.journal_mode == "wal"):
                        detail = f"cannot be given its journal mode again ({file.journal_mode})"
                        problems.append(SnapshotProblem(file.path, detail))
            say("auditing it there", None, None)
            _compare(manifest, scratch, problems, say)
    except (OSError, sqlite3.Error) as error:
        what = error.strerror if isinstance(error, OSError) else type(error).__name__
        not_checked.append(NotChecked("the restored pair", f"the scratch folder: {what}".lower()))
