"""After a move: what the agent's mem0 configuration must say, and the files that say it, changed where that is safe.

A plan reads and changes nothing. What it would write was parsed again and differs from what is there in the wanted
keys alone; `apply_update` writes exactly that, keeps the old file beside it, and reads the result once more.
"""

# Paths here are texts, kept as they were written.
# ruff: noqa: PTH116, PTH118, PTH120

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mem0audit.core import agentconfig as core
from mem0audit.core.advice import as_seen_inside
from mem0audit.core.agentconfig import Advice, Change, FileUpdate, Form, Updated
from mem0audit.core.configtext import CannotEdit, edited, refuse_filled_in, same
from mem0audit.core.errors import CouldNotRead, Failed, Refused, UsageProblem
from mem0audit.core.model import Install
from mem0audit.core.server import ServerAddress
from mem0audit.core.snapshot import name_of
from mem0audit.install.config import (
    DEFAULT_PATH,
    ConfigText,
    load_mem0_config,
    load_settings,
    parsed,
    read_config_text,
    without_secrets,
)
from mem0audit.install.host import Host, resolved
from mem0audit.operations.targets import is_mount_point
from mem0audit.stores import exchange

_Judge = Callable[[Mapping[str, Any]], tuple[Change, ...]]


def plan_update(
    install: Install,
    host: Host,
    *,
    vectors: str | None = None,
    history: str | None = None,
    mem0: str | None = None,
) -> Advice:
    """What must say that the stores of `install`, as it was found before they move, lie at `vectors` (a folder) and
    `history` (a file); None: not moved. Absolute paths. `mem0` is the agent's version, None where it is not known.

    Changes nothing, and may be asked before the move. Files are planned for where mem0audit was given them: the agent's
    own (`--config FILE`, or `config` in mem0audit.toml), and mem0audit.toml itself where it names the old places.
    Raises Refused where no configuration keeps the folder from being deleted (mem0 0.0.8 to 0.0.15).
    """
    if vectors is not None:
        core.refuse_wiping(mem0)
    updates: list[FileUpdate] = []
    cannot: list[tuple[str, str]] = []
    form, where, raw, name = _agents_own(install, host)
    wanted = core.changes(
        mem0, vectors=vectors, history=history, raw=raw, collection=install.collection.value
    )
    missing = wanted if raw is None else core.differing(wanted, raw)
    source = install.config_file
    if source is not None and missing:
        if _is_module(source, host):
            cannot.append((source, "is Python code, which mem0audit does not change"))
        else:
            _plan(
                source, None, lambda raw: _agents_changes(raw, wanted, install, host), host, updates, cannot
            )
    settings = load_settings(host).file
    if settings is not None:
        said = (("qdrant_path", install.vectors, vectors), ("history", install.history, history))
        ours = tuple(
            Change((key,), new)
            for key, old, new in said
            if new is not None and old is not None and old.decided_by == settings and old.value != new
        )
        if ours:
            _plan(settings, "toml", lambda _: ours, host, updates, cannot)
    return Advice(
        form=form,
        where=where,
        lines=core.lines(form, missing, raw, name) if missing else (),
        environment=()
        if history is None or not _by_default(install, raw)
        else core.environment_lines(history),
        notes=core.notes(mem0, wanted) if missing else (),
        updates=tuple(updates),
        cannot=tuple(cannot),
        is_whole=raw is None,
    )


def plan_server_update(install: Install, host: Host, address: ServerAddress, *, with_key: bool) -> Advice:
    """What must say that the vectors of `install`, as it was found before they move, are on that server. Changes
    nothing; no file is planned for: a key belongs in no file that is printed, and keys that go need a look."""
    form, where, raw, name = _agents_own(install, host)
    gone = core.not_beside(address, with_key, from_folder=install.vectors is not None)
    wanted = core.server_changes(address, with_key, raw, install.collection.value, gone)
    missing = wanted if raw is None else core.differing(wanted, raw)
    return Advice(
        form=form,
        where=where,
        lines=core.lines(form, missing, raw, name) if missing else (),
        notes=core.server_notes(missing, form, gone if raw is None else ()),
        is_whole=raw is None,
    )


def plan_folder_update(install: Install, host: Host, vectors: str, *, mem0: str | None) -> Advice:
    """What must say that the vectors of `install`, on a server until they move, lie in the folder `vectors`. Changes
    nothing."""
    form, where, raw, name = _agents_own(install, host)
    wanted = core.changes(mem0, vectors=vectors, raw=raw, collection=install.collection.value)
    gone = core.not_beside(None, False, from_folder=False)
    wanted += core.taken_out(gone, raw)
    missing = wanted if raw is None else core.differing(wanted, raw)
    return Advice(
        form=form,
        where=where,
        lines=core.lines(form, missing, raw, name) if missing else (),
        notes=core.server_notes(missing, form, gone if raw is None else ()) + core.notes(mem0, wanted),
        is_whole=raw is None,
    )


def refuse_unless_editable(advice: Advice) -> None:
    """For `--update-config`, before anything is moved. Raises Refused where a file cannot be changed safely, or where
    there is none; the hint is what to do instead."""
    hint = "leave --update-config out: the lines to change by hand are printed"
    if advice.cannot:
        name, why = advice.cannot[0]
        raise Refused(f"{name}: {why}", hint)
    if not advice.updates and advice.lines:
        raise Refused(
            "--update-config: the agent's configuration is in no file that was named",
            f"--config FILE, or {hint}",
        )


def apply_update(advice: Advice, host: Host, now: float | None = None) -> tuple[Updated, ...]:
    """Changes the planned files, each whole or not at all: the old one is kept beside it under a dated name, owner,
    mode and attributes stay. `now` is in seconds since 1970.

    Every file is read again, by what reads it for an audit, and must differ in the wanted keys alone; else the old
    one is put back. Raises Refused (changed since it was planned), Failed: both say what was changed before.
    """
    done: list[Updated] = []
    for update in advice.updates:
        real = Path(update.real)
        backup = _free(real, f"before-{name_of(host.now if now is None else now)}")
        so_far = f"; changed before: {', '.join(one.path for one in done)}" if done else ""
        try:
            exchange.replace_file(real, update.before, update.after, backup)
        except exchange.NotTheSame:
            raise Refused(
                f"{update.path}: was changed since it was looked at: it is left as it is{so_far}",
                "run it again",
            ) from None
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            raise Failed(f"{update.path}: {why}: it is left as it was{so_far}", "change it by hand") from None
        if not _proven(update):
            exchange.replace_file(real, update.after, update.before, None)
            raise Failed(
                f"{update.path}: did not say what was written, and was put back{so_far}", "change it by hand"
            )
        done.append(Updated(update.path, update.keys, str(backup)))
    return tuple(done)


# --- The agent's own ------------------------------------------------------------------------------


def _agents_own(install: Install, host: Host) -> tuple[Form, str, Mapping[str, Any] | None, str]:
    """In what form the agent's configuration is written, where, what it says, and what the dict is called."""
    source = install.config_file
    if source is None:
        return "python", "where the agent makes its Memory", None, "config"
    if _is_module(source, host):
        module, _, name = source.partition(":")
        raw = load_mem0_config(source, install.agent_python, host.cwd).raw
        return "python", f"in {module}, after {name}", raw, name
    found = read_config_text(source)
    form: Form = "json" if found.kind == "json" else "toml" if found.kind == "toml" else "yaml"
    return form, f"in {source}", found.raw, "config"


def _is_module(source: str, host: Host) -> bool:
    return ":" in source and not os.path.exists(host.at(source))  # noqa: PTH110


def _by_default(install: Install, raw: Mapping[str, Any] | None) -> bool:
    """Whether the log lies where the environment (or nothing) says."""
    return (
        core.value_at(raw or {}, core.HISTORY) is None
        and install.history.decided_by == install.mem0_dir.decided_by
    )


def _agents_changes(
    raw: Mapping[str, Any], wanted: Sequence[Change], install: Install, host: Host
) -> tuple[Change, ...]:
    """What the file does not say yet; it must speak of the stores that move. Raises CannotEdit."""
    said = ((core.PATH, install.vectors, DEFAULT_PATH), (core.HISTORY, install.history, None))
    for key, old, default in said:
        change = next((one for one in wanted if one.key == key), None)
        there = core.value_at(raw, key)
        if change is None or there == change.value or (there is None and default is None):
            continue
        value = default if there is None else there
        if old is None or not isinstance(value, str) or not _one_place(value, old.value, host):
            refuse_filled_in(raw, change)  # the better reason
            raise CannotEdit(f"says {'.'.join(key)} is {value!r}, which is not the store that moves")
    return core.differing(wanted, raw)


def _one_place(value: str, old: str, host: Host) -> bool:
    if not value.startswith("/"):
        value = os.path.join(host.cwd, value)
    paths = {os.path.normpath(value), _resolved(value, host)}
    return bool(paths & {os.path.normpath(as_seen_inside(old)), _resolved(old, host)})


def _resolved(path: str, host: Host) -> str:
    try:
        return resolved(path, host)
    except OSError:
        return path


# --- One file -------------------------------------------------------------------------------------


def _plan(
    path: str,
    only: str | None,
    judge: _Judge,
    host: Host,
    updates: list[FileUpdate],
    cannot: list[tuple[str, str]],
) -> None:
    try:
        found = read_config_text(host.at(path), only)
        wanted = judge(found.raw)
        if wanted:
            real = _writable(path, host)
            updates.append(_update(path, real, found, wanted))
    except CannotEdit as problem:
        cannot.append((path, str(problem)))
    except (UsageProblem, CouldNotRead) as problem:
        cannot.append((path, problem.message.removeprefix(f"{path}: ")))


def _update(path: str, real: str, found: ConfigText, wanted: tuple[Change, ...]) -> FileUpdate:
    try:
        text = edited(found.text, found.kind, found.raw, wanted)
        ok = same(parsed(text, found.kind), core.with_changes(found.raw, wanted))
    except (ValueError, RecursionError):
        ok = False
    if not ok:
        raise CannotEdit("is written in a way that no safe edit was found for")
    mark = b"\xef\xbb\xbf" if found.data.startswith(b"\xef\xbb\xbf") else b""
    lines = difflib.unified_diff(found.text.splitlines(), text.splitlines(), path, path, n=2, lineterm="")
    diff = without_secrets(list(lines), found.raw)
    return FileUpdate(path, real, found.kind, wanted, diff, found.data, mark + text.encode())


def _writable(path: str, host: Host) -> str:
    """Where the file is written, its links followed. Raises CannotEdit where a new one cannot take its place."""
    real = os.path.realpath(host.at(path))
    found = os.stat(real)
    if not stat.S_ISREG(found.st_mode) or real.startswith(("/proc/", "/dev/")):
        raise CannotEdit("is no ordinary file")
    if found.st_nlink > 1:
        raise CannotEdit("has several names (hard links), of which only one would change")
    if is_mount_point(real, host):
        raise CannotEdit(
            "is mounted by itself, so no other file can take its name: change it outside, or by hand"
        )
    if host.uid not in (0, found.st_uid):
        raise CannotEdit("belongs to another user: run it as its owner")
    if not os.access(os.path.dirname(real), os.W_OK | os.X_OK):
        raise CannotEdit("lies in a folder that you cannot write to")
    return real


def _free(real: Path, end: str) -> Path:
    path, number = real.with_name(f"{real.name}.{end}"), 1
    while os.path.lexists(path):
        number += 1
        path = real.with_name(f"{real.name}.{end}-{number}")
    return path


def _proven(update: FileUpdate) -> bool:
    """Whether the file on the disk says what it said before, with the wanted values and nothing else new."""
    try:
        was = parsed(update.before.decode("utf-8-sig"), update.kind)
        now = read_config_text(update.real, update.kind).raw
    except (ValueError, UsageProblem, CouldNotRead):
        return False
    return same(now, core.with_changes(was, update.wanted))
