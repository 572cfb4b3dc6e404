"""Everything we say, as JSON for machines: schema 1, additions only, the schema files beside this one.

Never memory text, unless it was asked for (`show --text`). Output is ASCII: whatever was in a store, a
terminal or a log collector gets no raw control character from us.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mem0audit.core.catalogue import CATALOGUE, Rule
from mem0audit.core.model import (
    Agent,
    Candidate,
    Finding,
    HistoryRow,
    Holder,
    Incident,
    Install,
    NotChecked,
    Origin,
    Place,
    Report,
    SealOutcome,
    Snapshots,
)
from mem0audit.core.times import shown
from mem0audit.report.escape import without_surrogates
from mem0audit.report.moved import moved_json
from mem0audit.report.steps import life_json

if TYPE_CHECKING:  # data only: explain must not load what these operations read with
    from mem0audit.core.marks import Checked, Kept
    from mem0audit.core.snapshot import Listed, Manifest, ServerCopy, ServerPlan, SnapshotPlan, Taken, Verdict
    from mem0audit.operations.log import Log
    from mem0audit.operations.show import Shown
    from mem0audit.operations.status import ServerSeen, Status
    from mem0audit.operations.users import Users

SCHEMA = 1
"""Raised only when a field is removed or changes its meaning; new fields are no new schema."""


def dump(kind: str, body: Mapping[str, Any]) -> str:
    """A document of ours: `schema` and `kind` first, then the body; two spaces, ASCII, one newline."""
    document = without_surrogates({"schema": SCHEMA, "kind": kind, **body})
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def audit_json(report: Report, exit_code: int) -> str:
    """An audit. `exit_code` is the one the command ends with, given the user's `--fail-on`."""
    return dump(
        "audit",
        {
            "install": install(report.install),
            "agent": agent(report.agent),
            "versions": dict(report.versions),
            "places": [place(p) for p in report.places],
            "holders": [holder(h) for h in report.holders],
            "checked": list(report.checked),
            "not_checked": [not_checked(n) for n in report.not_checked],
            "incidents": [incident(i) for i in report.incidents],
            "findings": [finding(f) for f in report.findings],
            "counts": dict(report.counts),
            "candidates": [candidate(c) for c in report.candidates],
            "snapshots": None if report.snapshots is None else snapshots_known(report.snapshots),
            "seconds": round(report.seconds, 3),
            "exit_code": exit_code,
            "copy": None
            if report.copy is None
            else {
                "path": report.copy.path,
                "taken_at": shown(report.copy.taken_at),
                "dated_by": report.copy.dated_by,
                "pair": report.copy.pair,
            },
            "seal": _seal(report.seal),
        },
    )


def _seal(value: SealOutcome | None) -> dict[str, Any] | None:
    """What came of sealing; null where it was not asked for."""
    if value is None:
        return None
    return {
        "extended": value.extended,
        "unchanged": value.unchanged,
        "why": value.why,
        "number": value.number,
        "at": value.at,
        "memories": value.memories,
        "rows": value.rows,
        "accepted": list(value.accepted),
    }


def _origin(value: Origin | None) -> dict[str, str] | None:
    return None if value is None else {"value": value.value, "decided_by": value.decided_by}


def install(value: Install) -> dict[str, Any]:
    """What the install is, each value with what decided it."""
    return {
        "history": _origin(value.history),
        "vectors": _origin(value.vectors),
        "server_url": _origin(value.server_url),
        "collection": _origin(value.collection),
        "mem0_dir": _origin(value.mem0_dir),
        "provider": value.provider,
        "embedder_dims": value.embedder_dims,
        "on_disk": value.on_disk,
        "config_file": value.config_file,
    }


def snapshots_known(value: Snapshots) -> dict[str, Any]:
    """What is known of the install's snapshots; the oldest first."""
    return {
        "folders": list(value.folders),
        "max_age_s": value.max_age_s,
        "unfinished": list(value.unfinished),
        "snapshots": [
            {
                "path": one.path,
                "taken_at": one.taken_at,
                "pair": one.pair,
                "settled": one.settled,
                "problems": list(one.problems),
                "verified_at": one.verified_at,
                "erased": one.erased,
            }
            for one in value.snapshots
        ],
    }


def agent(value: Agent) -> dict[str, Any]:
    """Whose mem0 it is."""
    return {
        "interpreter": value.interpreter,
        "mem0_version": value.mem0_version,
        "client_version": value.client_version,
        "source": value.source,
    }


def place(value: Place) -> dict[str, Any]:
    """What a path stands on; null is "could not be found out"."""
    return {
        "path": value.path,
        "exists": value.exists,
        "filesystem": value.filesystem,
        "mount_point": value.mount_point,
        "volatile": value.volatile,
        "network": value.network,
        "container_layer": value.container_layer,
        "cleaned": None
        if value.cleaned is None
        else {"source": value.cleaned.source, "line": value.cleaned.line, "when": value.cleaned.when},
        "readable_by_others": value.readable_by_others,
        "replaceable_parent": value.replaceable_parent,
        "size_bytes": value.size_bytes,
        "free_bytes": value.free_bytes,
        "born_at": value.born_at,
        "modified_at": value.modified_at,
        "link_target": value.link_target,
        "problem": value.problem,
    }


def holder(value: Holder) -> dict[str, Any]:
    """A process that has the install open."""
    return {
        "pid": value.pid,
        "command": value.command,
        "how": value.how,
        "paths": list(value.paths),
        "user": value.user,
        "unit": value.unit,
        "container": value.container,
        "private_mounts": value.private_mounts,
        "private_tmp": value.private_tmp,
        "interpreter": value.interpreter,
        "started_at": value.started_at,
    }


def candidate(value: Candidate) -> dict[str, Any]:
    """Another store on this machine."""
    return {
        "kind": value.kind,
        "path": value.path,
        "found_by": value.found_by,
        "command": value.command,
        "memories": value.memories,
    }


def not_checked(value: NotChecked) -> dict[str, Any]:
    """What was not looked at; `gap` is true where that makes the audit incomplete."""
    return {"what": value.what, "why": value.why, "gap": value.gap}


def incident(value: Incident) -> dict[str, Any]:
    """One event that explains findings."""
    return {
        "name": value.name,
        "kind": value.kind,
        "certainty": value.certainty.label,
        "evidence": list(value.evidence),
        "advice": list(value.advice),
        "codes": list(value.codes),
        "memory_ids": sorted(value.memory_ids),
    }


def finding(value: Finding) -> dict[str, Any]:
    """One fault."""
    rule = CATALOGUE.get(value.code)
    return {
        "code": value.code,
        "name": rule.name if rule else "",
        "severity": value.severity.label,
        "memory_id": value.memory_id,
        "path": value.path,
        "subject": value.subject,
        "evidence": dict(value.evidence),
        "help": value.help,
    }


def server_seen(value: ServerSeen) -> dict[str, Any]:
    """A Qdrant server as it was asked; the API key only by where it comes from."""
    layout = value.layout
    return {
        "url": value.address.value,
        "decided_by": value.address.decided_by,
        "api_key_from": value.key_from,
        "version": layout.version,
        "problem": None if layout.problem is None else layout.problem.detail,
        "collections": [
            {
                "name": info.name,
                "points": None if info.server is None else info.server.points,
                "dimensions": info.dims,
                "status": None if info.server is None else info.server.status,
            }
            for info in layout.collections
            if not info.foreign
        ],
        "other_collections": [info.name for info in layout.collections if info.foreign],
    }


def explain_json(rules: Iterable[Rule]) -> str:
    """The pages of rules."""
    return dump(
        "explain",
        {
            "rules": [
                {
                    "code": rule.code,
                    "name": rule.name,
                    "severity": rule.severity.label,
                    "summary": rule.summary,
                    "comes_about": rule.comes_about,
                    "looks_like": rule.looks_like,
                    "to_do": rule.to_do,
                    "not_this": rule.not_this,
                    "threshold": rule.threshold,
                }
                for rule in rules
            ]
        },
    )


def status_json(found: Status) -> str:
    """What an install stands on; each place with its role."""
    return dump(
        "status",
        {
            "install": install(found.install),
            "agent": agent(found.agent),
            "versions": dict(found.versions),
            "places": [{"role": s.role, "decided_by": s.decided_by, **place(s.place)} for s in found.places],
            "holders": [holder(h) for h in found.holders],
            "candidates": [candidate(c) for c in found.candidates],
            "not_checked": [not_checked(n) for n in found.not_checked],
            "ledger": None
            if found.ledger is None
            else {
                "path": found.ledger.path,
                "snapshot_folders": list(found.ledger.snapshot_folders),
                "seals": found.ledger.seals,
                "sealed_at": found.ledger.sealed_at,
            },
            "snapshots": None if found.snapshots is None else snapshots_known(found.snapshots),
            "server": None if found.server is None else server_seen(found.server),
            "put_aside": list(found.put_aside),
            "moved": moved_json(found.moved),
            "interrupted": None
            if found.interrupted is None
            else {
                "folder": found.interrupted.folder,
                "snapshot": found.interrupted.snapshot,
                "started_at": found.interrupted.started_at,
                "course": found.interrupted.course,
                "problem": found.interrupted.problem,
            },
            "moves_cut_off": [
                {
                    "folder": left.cut.folder,
                    "to": left.to,
                    "history": left.history,
                    "vectors": left.vectors,
                    "started_at": left.cut.started_at,
                    "course": left.cut.course,
                    "problem": left.cut.problem,
                    "command": left.command,
                }
                for left in found.left_moves
            ],
        },
    )


def users_json(found: Users) -> str:
    """Scopes with counts. An owner that is no text keeps its JSON type."""
    return dump(
        "users",
        {
            "install": install(found.install),
            "collection": found.collection,
            "scopes": [
                {
                    "user_id": plain(s.user_id),
                    "agent_id": plain(s.agent_id),
                    "run_id": plain(s.run_id),
                    "memories": s.memories,
                    "unreachable": s.unreachable,
                }
                for s in found.scopes
            ],
            "users": [{"user_id": plain(user), "memories": count} for user, count in found.per_user],
            "memories": found.memories,
            "not_checked": [not_checked(n) for n in found.not_checked],
        },
    )


def show_json(found: Shown, *, text: bool) -> str:
    """One memory. Without `text` its texts and the caller's own metadata are left out: only mem0's own
    keys, and of the others their names."""
    from mem0audit.report.ledger import fact_json

    return dump(
        "show",
        {
            "memory_id": found.memory_id,
            "stored": [
                {
                    "collection": s.collection,
                    "rowid": s.rowid,
                    "loads": s.loads,
                    "problem": s.problem,
                    "payload": _payload(s.payload, text),
                    "payload_keys": [str(k) for k in s.payload],
                    "vector": {
                        "dims": s.vector.dims,
                        "flaw": s.vector.flaw,
                        "names": list(s.vector.names),
                    },
                }
                for s in found.stored
            ],
            "history": [history_row(row, text) for row in found.history],
            "entities": [
                {
                    "collection": e.collection,
                    "id": e.entity_id,
                    "links": e.links,
                    "payload": _payload(e.payload, text),
                }
                for e in found.entities
            ],
            "findings": [finding(f) for f in found.findings],
            "incidents": [incident(i) for i in found.incidents],
            "not_checked": [not_checked(n) for n in found.not_checked],
            "timeline": None if found.timeline is None else life_json(found.timeline, text=text),
            "ledger": None if found.ledger is None else fact_json(found.memory_id, found.ledger, found.now),
        },
    )


_NO_TEXT_KEYS = frozenset(
    (
        *("hash", "created_at", "updated_at", "expiration_date", "user_id", "agent_id", "run_id", "actor_id"),
        *("role", "memory_type", "attributed_to", "entity_type", "linked_memory_ids"),
    )
)
"""Payload keys of mem0's own that hold no text of a memory."""


def _payload(payload: Mapping[str, Any], text: bool) -> dict[str, Any]:
    return {str(k): plain(v) for k, v in payload.items() if text or k in _NO_TEXT_KEYS}


def history_row(row: HistoryRow, text: bool) -> dict[str, Any]:
    """A row of the log; without `text`, whether it has an old and a new text in place of them."""
    out = {name: plain(value) for name, value in row._asdict().items()}
    if not text:
        out["has_old_memory"] = out.pop("old_memory") is not None
        out["has_new_memory"] = out.pop("new_memory") is not None
    return out


def log_json(found: Log, *, text: bool) -> str:
    """mem0's change log: file, tables, schema, counts, newest changes."""
    file = found.file
    state = file.file
    return dump(
        "log",
        {
            "install": install(found.install),
            "file": {
                "path": state.path,
                "size_bytes": state.size_bytes,
                "journal_mode": state.journal_mode,
                "way": state.way,
                "hot_journal": state.hot_journal,
                "problem": None
                if state.problem is None
                else {"kind": state.problem.kind, "detail": state.problem.detail},
            },
            "tables": dict(file.tables),
            "history_schema": file.schema,
            "columns": list(file.columns),
            "create_statements": dict(file.create_statements),
            "stranded": [
                {"name": s.name, "rows": s.rows, "missing_rows": s.missing_rows} for s in file.stranded
            ],
            "events": dict(found.events),
            "problem": found.problem,
            "newest": [history_row(row, text) for row in found.newest],
        },
    )


def config_json(value: Install, settings: str | None, mem0: Mapping[str, Any] | None) -> str:
    """Which install is meant; the mem0 config comes already masked."""
    body = {"install": install(value), "settings_file": settings, "mem0_config": plain(mem0)}
    return dump("config", body)


def plain(value: Any) -> Any:
    """A value from a store as JSON can hold it: what has no JSON type becomes its text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


# --- snapshot -----------------------------------------------------------------------------------


def snapshot_plan_json(plan: SnapshotPlan) -> str:
    """What `snapshot create` would do."""
    return dump(
        "snapshot-plan",
        {
            "install": install(plan.install),
            "folder": plan.folder,
            "name": plan.name,
            "files": [{"source": source, "path": path} for source, path in plan.sources],
            "size_bytes": plan.size_bytes,
            "needed_bytes": plan.needed_bytes,
            "free_bytes": plan.free_bytes,
            "hold_s": round(plan.hold_s, 3),
            "running": plan.running,
            "place": place(plan.place),
        },
    )


def server_plan_json(plan: ServerPlan) -> str:
    """What `snapshot create` would do where the points lie on a server."""
    log = {"source": plan.install.history.value, "path": "history.db"}
    assert plan.install.server_url is not None
    url = plan.install.server_url.value
    files = [{"source": f"{url}/collections/{name}", "path": path} for _, name, _, path in plan.collections]
    return dump(
        "snapshot-plan",
        {
            "install": install(plan.install),
            "folder": plan.folder,
            "name": plan.name,
            "files": [log, *files],
            "size_bytes": plan.history_bytes,
            "needed_bytes": plan.needed_bytes,
            "free_bytes": plan.free_bytes,
            "hold_s": round(plan.hold_s, 3),
            "running": plan.running,
            "place": place(plan.place),
            "server": {
                "url": url,
                "version": plan.version,
                "collections": [
                    {"name": name, "role": role, "points": points}
                    for role, name, points, _ in plan.collections
                ],
            },
        },
    )


def snapshot_json(
    path: str, manifest: Manifest, taken: Taken | None = None, listed: Listed | None = None
) -> str:
    """One snapshot; `taken` where it was just made, `listed` where it is shown with what is known beside it."""
    body: dict[str, Any] = {
        "path": path,
        "size_bytes": manifest.size_bytes,
        "manifest": _manifest(manifest),
    }
    if listed is not None:
        body.update(_marks(listed.checked, listed.kept))
    if taken is not None:
        body["removed"] = list(taken.removed)
        body["seconds"] = round(taken.seconds, 3)
        body["notes"] = list(taken.notes)
        body["seal"] = _seal(taken.seal)
    return dump("snapshot", body)


def snapshots_json(folder: str, listed: Iterable[Listed], marks_problem: str | None = None) -> str:
    """The snapshots in a folder; `marks_problem` is why it is not known which are verified and kept."""
    return dump(
        "snapshots",
        {
            "folder": folder,
            "marks_problem": marks_problem,
            "snapshots": [
                {
                    "name": one.name,
                    "path": one.path,
                    "problem": one.problem,
                    "size_bytes": None if one.manifest is None else one.manifest.size_bytes,
                    "manifest": None if one.manifest is None else _manifest(one.manifest),
                    **_marks(one.checked, one.kept),
                }
                for one in listed
            ],
        },
    )


def _marks(checked: Checked | None, kept: Kept | None) -> dict[str, Any]:
    """What is known of a snapshot beside itself."""
    return {
        "verified": None
        if checked is None
        else {"at": checked.at, "depth": checked.depth, "good": checked.good, "problem": checked.problem},
        "kept": kept_json(kept),
    }


def kept_json(kept: Kept | None) -> dict[str, str] | None:
    """A mark of `snapshot keep`."""
    return None if kept is None else {"at": kept.at, "reason": kept.reason}


def verify_json(
    verdicts: Iterable[Verdict],
    *,
    not_recorded: Mapping[str, str | None],
    backups: Iterable[Mapping[str, Any]] = (),
) -> str:
    """What `snapshot verify` says of each; `not_recorded` is by path why that was not noted, None where it was.

    `backups` are those that are no snapshots (report.backups).
    """
    return dump(
        "verify",
        {
            "snapshots": [
                {
                    "name": one.name,
                    "path": one.path,
                    "depth": one.depth,
                    "good": one.good,
                    "settled": None if one.manifest is None else one.manifest.settled,
                    "problems": [{"path": p.path, "detail": p.detail} for p in one.problems],
                    "not_checked": [not_checked(n) for n in one.not_checked],
                    "findings": dict(one.findings),
                    "seconds": round(one.seconds, 3),
                    "not_recorded": not_recorded[one.path],
                }
                for one in verdicts
            ],
            "backups": list(backups),
        },
    )


def _manifest(manifest: Manifest) -> dict[str, Any]:
    """The manifest, field by field as in its file."""
    return {
        "name": manifest.name,
        "created_at": manifest.created_at,
        "history": _origin(manifest.history),
        "vectors": _origin(manifest.vectors),
        "collection": _origin(manifest.collection),
        "mem0_dir": _origin(manifest.mem0_dir),
        "hostname": manifest.hostname,
        "filesystems": dict(manifest.filesystems),
        "versions": dict(manifest.versions),
        "files": [
            {
                "path": f.path,
                "size_bytes": f.size_bytes,
                "sha256": f.sha256,
                "source": f.source,
                "collection": f.collection,
                "journal_mode": f.journal_mode,
                "way": f.way,
            }
            for f in manifest.files
        ],
        "counts": dict(manifest.counts),
        "points_digest": manifest.points_digest,
        "history_digest": manifest.history_digest,
        "findings": dict(manifest.findings),
        "settled": manifest.settled,
        "unsettled_why": manifest.unsettled_why,
        "tries": manifest.tries,
        "longest_hold_s": manifest.longest_hold_s,
        "pair": manifest.pair,
        **({"until": manifest.until} if manifest.until is not None else {}),
        **({"server": _server_copy(manifest.server)} if manifest.server is not None else {}),
    }


def _server_copy(server: ServerCopy) -> dict[str, Any]:
    return {
        "url": server.url,
        "version": server.version,
        "collections": [
            {
                "name": one.name,
                "role": one.role,
                "path": one.path,
                "points": one.points,
                "digest": one.digest,
                "params": dict(one.params),
                "payload_schema": dict(one.payload_schema),
            }
            for one in server.collections
        ],
    }
