"""An audit as the screen that a person reads, perhaps at night: the answer, the one thing to do, the evidence.

Order: header (what stands where), verdict (are memories gone, will more go, what to do now), what
happened, findings by rule, what was not read, the line of counts. Everything from a store is escaped.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence

from mem0audit.core.advice import dies_with_agent, keep_log_step, manual_snapshot_steps
from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.model import CopyOf, Finding, Holder, Incident, NotChecked, Place, Report, Severity
from mem0audit.core.points import clipped
from mem0audit.core.rules.servers import NO_SERVER
from mem0audit.core.snapshot import BY_PAGES_BYTES
from mem0audit.core.times import age, shown
from mem0audit.core.words import shell_words
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.pages import candidate_lines
from mem0audit.report.screen import Screen, table
from mem0audit.report.seal import seal_lines
from mem0audit.report.words import (
    agent_words,
    evidence_value,
    ground,
    memories,
    number,
    plural,
    seconds,
    size,
)

SHOWN = 3
_MOST_ID = 200
"""How many findings of one rule are shown without `--verbose`."""

_AGREE = ("D301", "D302", "D303", "D304")
_GONE = ("L106", "Q951", "D302")
_RISKS = ("I208", "L110", "L104", "L103", "L101", "L102", "I209")
"""What loses or changes memories at the next restart, most urgent first."""


def audit_text(report: Report, screen: Screen) -> str:
    """The whole screen of an audit, ending in a newline; empty with `quiet` when nothing is wrong."""
    if report.nothing_found:
        lines = _nothing_found(report, screen)
    elif _short(report, screen):
        lines = [] if screen.quiet else _good(report, screen)
    elif screen.quiet:
        lines = [*_verdict(report, screen), *_groups(report, screen, evidence=False), *_gaps(report, screen)]
    else:
        lines = [*_header(report, screen), "", *_verdict(report, screen)]
        if report.incidents:
            lines += ["", screen.bold("What happened"), *_incidents(report, screen)]
        if report.findings:
            lines += ["", screen.bold("Findings"), *_groups(report, screen, evidence=True)]
        gaps = _gaps(report, screen)
        if gaps:
            lines += ["", screen.bold("Could not be read or checked"), *gaps]
        lines += ["", *_last_line(report, screen)]
    if report.seal is not None and (not screen.quiet or report.seal.refused):
        lines += seal_lines(report.seal, screen)
    return "\n".join(lines) + "\n" if lines else ""


# --- Parts --------------------------------------------------------------------------------------


def _place(report: Report, path: str) -> Place | None:
    return next((p for p in report.places if p.path == path), None)


def _count(report: Report, name: str) -> int | None:
    return report.counts.get(name)


def _codes(report: Report) -> dict[str, list[Finding]]:
    """Findings by code, most severe code first, then by code; inside a code as the audit gave them."""
    groups: dict[str, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault(finding.code, []).append(finding)
    return dict(sorted(groups.items(), key=lambda item: (-max(f.severity for f in item[1]), item[0])))


def _name(code: str) -> str:
    rule = CATALOGUE.get(code)
    return rule.name if rule else ""


def _visible(report: Report) -> bool:
    """Whether other people's processes could be looked at."""
    return not any(n.what == "L104" for n in report.not_checked)


def _header(report: Report, screen: Screen) -> list[str]:
    install = report.install
    rows: list[tuple[str, str, list[str], str, bool | None]] = []
    for label, path in zip(("history", "vectors"), report.store_paths, strict=False):
        place = _place(report, path)
        facts = [size(place.size_bytes)] if place and place.size_bytes is not None else []
        if label == "history":
            facts += _fact(report, "changes", "change", "changes")
        else:
            facts += _fact(report, "memories", "memory", "memories")
            facts += _fact(report, "entities", "entity", "entities", zero=False)
        words, lasts = ground(place, report.holders) if place else ("not looked at", None)
        if report.copy is not None:
            words, lasts = "a copy", None
        rows.append((label, escape(path), facts, words, lasts))
    if install.server_url is not None:
        words = (
            "a server" if (version := report.versions.get("qdrant")) is None else f"Qdrant {escape(version)}"
        )
        if any(n.what == install.server_url.value and n.gap for n in report.not_checked):
            words = "NOT READ"
        facts = _fact(report, "memories", "memory", "memories")
        facts += _fact(report, "entities", "entity", "entities", zero=False)
        rows.append(("vectors", escape(install.server_url.value), facts, words, None))
    elif install.vectors is None:
        rows.append(("vectors", escape(install.provider), [], "not Qdrant: only the log was read", None))
    if report.copy is not None:
        rows.append(("taken", _as_of(report.copy), [], "a pair" if report.copy.pair else "not a pair", None))
        return _header_rows(rows, screen)
    facts, state = agent_words(report.agent, report.holders, seen=_visible(report))
    rows.append(("agent", escape(" · ".join(facts)), [], state, None))
    return _header_rows(rows, screen)


def _as_of(copy: CopyOf) -> str:
    return f"{shown(copy.taken_at)} · {escape(copy.dated_by)}"


def _fact(report: Report, name: str, one: str, many: str, zero: bool = True) -> list[str]:
    count = _count(report, name)
    return [plural(count, one, many)] if count is not None and (count or zero) else []


def _header_rows(rows: Sequence[tuple[str, str, list[str], str, bool | None]], screen: Screen) -> list[str]:
    """One line a place where the terminal is wide enough, else the ground on a line of its own."""
    stores = [row for row in rows if row[2]]
    path_width = max((len(row[1]) for row in stores), default=0)
    facts_width = max((len("  ".join(row[2])) for row in stores), default=0)
    left_width = 9 + path_width + 2 + facts_width
    one_line = left_width + 3 + max(len(row[3]) for row in rows) <= screen.width
    lines = []
    for label, what, facts, words, lasts in rows:
        coloured = screen.alarm(words) if lasts is False else words
        left = f"{label:<9}" + (what.ljust(path_width) + "  " + "  ".join(facts) if facts else what)
        if one_line and len(left) <= left_width:
            lines.append(f"{left.ljust(left_width)}   {coloured}".rstrip())
        elif len(left) + 3 + len(words) <= screen.width:
            lines.append(f"{left.rstrip()}   {coloured}")
        else:
            lines += _broken(f"{label:<9}{what}", screen.width)
            said = "  ".join(facts)
            if facts and 9 + len(said) + 2 + len(words) <= screen.width:
                lines.append(f"{'':<9}{said}  {coloured}")
            else:
                lines += [" " * 9 + said] * bool(facts) + [" " * 9 + coloured]
    return lines


def _broken(line: str, width: int) -> list[str]:
    """A header line at its dots, where it is too long; a path is never cut."""
    parts = line.split(" · ")
    out = [parts[0]]
    for part in parts[1:]:
        if len(out[-1]) + 3 + len(part) <= width:
            out[-1] += " · " + part
        else:
            out.append(" " * 9 + part)
    return out


# --- The answer ---------------------------------------------------------------------------------


def _verdict(report: Report, screen: Screen) -> list[str]:
    groups = _codes(report)
    lines: list[str] = []
    for sentence in [*_gone(report, groups), *_at_risk(report, groups)]:
        lines += [screen.alarm(line) for line in screen.wrap(sentence)]
    others = " ".join(_others(report, groups))
    if not lines and not others and report.incidents:
        first = max(report.incidents, key=lambda i: i.certainty)
        others = f"{first.name[:1].upper()}{first.name[1:]} ({first.certainty.label})."
    worst = max((f.severity for f in report.findings), default=Severity.INFO)
    lines += [screen.severity(worst, line) for line in screen.wrap(others)]
    rest = []
    if not any(code in groups for code in _GONE):
        rest.append(_nothing_gone(report))
    if not any(code in groups for code in _RISKS):
        rest.append(_nothing_at_risk(report))
    lines += screen.wrap(" ".join(s for s in rest if s))
    for label, steps in _now(report, groups, screen):
        lines += _labelled(label, steps, screen)
    return lines


def _labelled(label: str, steps: Sequence[str], screen: Screen) -> list[str]:
    """`Now:  command` on one line where it is one line and fits, else the steps below the label."""
    lines = [line for step in steps for line in screen.steps(step, 0)]
    if len(lines) == 1 and len(label) + 3 + len(lines[0]) <= screen.width:
        return [screen.bold(label) + "   " + lines[0]]
    indented = [line for step in steps for line in screen.steps(step, 3)]
    return [*(screen.bold(line) for line in screen.wrap(label)), *indented]


def _gone(report: Report, groups: dict[str, list[Finding]]) -> list[str]:
    lost = {f.memory_id for f in groups.get("D302", [])}
    if "L106" in groups or "Q951" in groups:
        finding = (groups.get("L106") or groups["Q951"])[0]
        live = _count(report, "live") or len(lost)
        where = finding.path or "the vector store"
        there = finding.evidence.get("collections there")
        found = live - len(lost) if "D302" in report.checked and _count(report, "memories") else 0
        if there and found > 0:
            verb = "is" if found == 1 else "are"
            return [
                f"There is no collection {finding.subject} on {where}, and {memories(found)} of the log {verb} in "
                f"another one there ({there}): is the name right?"
            ]
        gone = "The memories are gone"
        if _not_named(report):
            gone += ", or the agent keeps them elsewhere"
            where += ", mem0's default,"
        return [
            f"{gone}: {where} is missing or empty"
            + (f", and the log has {memories(live)} as live." if live else ".")
        ]
    if lost and report.copy is not None:
        verb = "is" if len(lost) == 1 else "are"
        return [f"{memories(len(lost))} of its log {verb} not in its vectors: restored, it would lack them."]
    mixed = _mixed_up(report)
    if lost and mixed is not None:
        verb = "is" if len(lost) == 1 else "are"
        return [
            f"{mixed.name[:1].upper()}{mixed.name[1:]} ({mixed.certainty.label}): "
            f"{memories(len(lost))} of the log {verb} not in this store, and may be in the log's own."
        ]
    if lost:
        stay = _count(report, "memories")
        verb = "is" if len(lost) == 1 else "are"
        there = ""
        if stay is not None:
            there = (
                f" {number(stay)} {'is' if stay == 1 else 'are'} there." if stay else " The store is empty."
            )
        return [f"{memories(len(lost))} {verb} gone: live in the log, and not in the store.{there}"]
    return []


def _mixed_up(report: Report) -> Incident | None:
    """The incident that two halves were named which do not belong together: then nothing of them is lost."""
    return next((i for i in report.incidents if i.kind == "two-installs"), None)


def _not_named(report: Report) -> bool:
    """Whether nobody said where the vectors are: the agent's configuration may name another folder."""
    vectors = report.install.vectors
    return vectors is not None and vectors.decided_by == "mem0's default"


def _at_risk(report: Report, groups: dict[str, list[Finding]]) -> list[str]:
    return [_RISK_SENTENCES[code](report, groups[code]) for code in _RISKS if code in groups]


def _what_stands(report: Report, findings: list[Finding]) -> tuple[str, str]:
    """What a place finding is about, as subject and verb: ("9,871 memories and their log", "stand")."""
    paths = {f.path for f in findings}
    history = report.install.history.value
    stored = _count(report, "memories")
    vectors = "The memories" if stored is None else memories(stored)
    if paths == {history}:
        return "The log", "stands"
    return (vectors + " and their log" if history in paths else vectors), "stands" if stored == 1 else "stand"


def _volatile(report: Report, findings: list[Finding]) -> str:
    places = [p for p in (_place(report, f.path or "") for f in findings) if p is not None]
    kind = next((p.filesystem for p in places if p.filesystem), "volatile filesystem")
    if places and not any(p.exists for p in places):
        return f"{places[0].path} would be on a {kind}: what the agent writes there, the next reboot loses."
    there = [f for f in findings if (p := _place(report, f.path or "")) is None or p.exists]
    what, verb = _what_stands(report, there)
    holder = next((h for h in report.holders if any(dies_with_agent(p, h) for p in places)), None)
    stop = f", or stopping {_holder(holder)}," if holder else ""
    return f"{what} {verb} on a {kind}: the next reboot{stop} loses {_them(what)}."


def _private(report: Report, findings: list[Finding]) -> str:
    what, verb = _what_stands(report, findings)
    holder = next((h for h in report.holders if h.private_tmp), None)
    return f"{what} {verb} in a private /tmp: stopping {_holder(holder)} loses {_them(what)}."


def _container(report: Report, findings: list[Finding]) -> str:
    what, verb = _what_stands(report, findings)
    return f"{what} {verb} in a container's own layer: removing or recreating it loses {_them(what)}."


def _cleaned(report: Report, findings: list[Finding]) -> str:
    what, verb = _what_stands(report, findings)
    place = _place(report, findings[0].path or "")
    when = place.cleaned.when if place and place.cleaned else None
    if when == "at boot":
        return f"{what} {verb} in a folder that is emptied at boot: the next reboot loses {_them(what)}."
    after = f" once untouched for {when}" if when else ""
    return f"{what} {verb} in a folder that systemd-tmpfiles cleans{after}."


def _wiped(report: Report, findings: list[Finding]) -> str:
    mem0 = f"mem0ai {report.agent.mem0_version}" if report.agent.mem0_version else "its mem0ai"
    unless = ", unless its configuration sets on_disk to true" if report.install.on_disk is None else ""
    return f"The next start of the agent deletes the vector store: {mem0} does so{unless}."


def _unsafe(report: Report, findings: list[Finding]) -> str:
    return "Do not start the agent, or open the store with qdrant-client: a point in it would run code."


def _ghosts(report: Report, findings: list[Finding]) -> str:
    count = plural(len(findings), "point has", "points have")
    return f"{count} several rows: a deleted or older version can come back at the next start."


_RISK_SENTENCES: dict[str, Callable[[Report, list[Finding]], str]] = {
    "I208": _unsafe,
    "L110": _wiped,
    "L104": _private,
    "L103": _container,
    "L101": _volatile,
    "L102": _cleaned,
    "I209": _ghosts,
}


def _holder(holder: Holder | None) -> str:
    if holder is None:
        return "the agent"
    return holder.unit or (f"container {holder.container[:12]}" if holder.container else f"pid {holder.pid}")


def _them(what: str) -> str:
    return "it" if what == "The log" or what.startswith("1 memory") else "them"


def _nothing_gone(report: Report) -> str:
    """That no memory is missing: said only when every rule that would know was checked, and all was read.

    Where it could not be found out, that is said, with the reason.
    """
    if report.copy is not None:
        stored, changes = _count(report, "memories"), _count(report, "changes")
        agree = set(_AGREE) <= set(report.checked) and not any(f.code in _AGREE for f in report.findings)
        if not agree or stored is None or changes is None:
            return ""
        return f"{memories(stored)} and {plural(changes, 'change')} agree."
    unknown = [n for n in report.not_checked if n.what in ("D302", "L106")]
    gaps = unknown or [n for n in report.not_checked if n.gap]
    if unknown or (gaps and not {"L106", "D302"} <= set(report.checked)):
        return f"Whether memories are missing is not known: {gaps[0].why}."
    if not {"L106", "D302"} <= set(report.checked):
        return ""
    if any(incident.kind == "reset" for incident in report.incidents):
        return ""  # the log that would know is gone too
    stored = _count(report, "memories")
    missing = "No memory is missing" if stored is None else f"None of {memories(stored)} is missing"
    return f"{missing}, of what could be read." if gaps else f"{missing}."


def _nothing_at_risk(report: Report) -> str:
    if report.copy is not None:
        return ""
    if report.install.vectors is None:
        what = "server" if report.install.server_url is not None else "vector store"
        return f"What the {what} stands on was not looked at."
    looked = ("L101", "L102", "L103", "L104", "L110")
    checked = set(report.checked)
    if not checked & set(looked):
        return ""
    silent = {n.what for n in report.not_checked}
    unknown = [code for code in looked if code not in checked or code in silent]
    if not unknown:
        return "Nothing found that loses memories at the next restart."
    open_questions = " or ".join(f"{_RISK_QUESTIONS[code]} ({code})" for code in unknown)
    return f"Nothing found that loses memories at the next restart, but not known: {open_questions}."


_RISK_QUESTIONS = {
    "L101": "whether the stores are on a disk",
    "L102": "whether their folder is emptied at boot",
    "L103": "whether they are in a container's own layer",
    "L104": "whether the agent has a private /tmp",
    "L110": "whether the agent's mem0 deletes the folder when it starts",
}
"""What is open where a rule about the next restart could not be checked."""


_OTHERS: dict[str, tuple[str, str]] = {
    "I202": ("file is damaged", "files are damaged"),
    "I203": (
        "file was left in the middle of a write (hot journal)",
        "files were left in the middle of a write (hot journals)",
    ),
    "D301": (
        "deleted memory is still in the store, and the agent answers from it",
        "deleted memories are still in the store, and the agent answers from them",
    ),
    "D303": ("memory has no entry in the log", "memories have no entry in the log"),
    "D304": ("memory's text differs from the log's", "memories' texts differ from the log's"),
    "D307": ("memory has different owners in different places", "memories have different owners"),
    "D308": (
        "memory cannot be reached by its owner: delete_all leaves it",
        "memories cannot be reached by their owner: delete_all leaves them",
    ),
    "E501": (
        "entity keeps text of deleted memories",
        "entities keep text of deleted memories",
    ),
}


_RETURNING = (
    "deleted memory is in its vectors: restored, it would come back",
    "deleted memories are in its vectors: restored, they would come back",
)


def _others(report: Report, groups: dict[str, list[Finding]]) -> list[str]:
    """What else is wrong at `medium` or above, in a sentence each; what has no sentence, counted."""
    sentences, unsaid = [], 0
    for code, findings in groups.items():
        if code in _GONE or code in _RISKS or findings[0].severity < Severity.MEDIUM:
            continue
        elsewhere = sum(int(f.evidence.get("memories of this log in it") or 0) for f in findings)
        if code == "L108" and elsewhere:
            verb = "is" if elsewhere == 1 else "are"
            sentences.append(f"{memories(elsewhere)} of the log {verb} in another store, {findings[0].path}.")
        elif code in _OTHERS:
            one, many = _OTHERS[code] if report.copy is None or code != "D301" else _RETURNING
            sentences.append(plural(len(findings), one, many) + ".")
        else:
            unsaid += len(findings)
    if unsaid:
        others = bool(sentences) or any(code in groups for code in (*_GONE, *_RISKS))
        sentences.append(plural(unsaid, "other finding" if others else "finding") + " below.")
    return sentences


_TAKE_OUT = ("L104", "L103", "L101", "L110", "L102")
"""Where what is still there must be taken out before anything else, above all before the agent stops."""


def _now(
    report: Report, groups: dict[str, list[Finding]], screen: Screen
) -> list[tuple[str, tuple[str, ...]]]:
    """The one thing to do now, and what comes after it: what keeps what is still there goes first."""
    if report.copy is not None:
        return []
    cut_off = groups.get("B906", ())
    moves = [one for one in cut_off if "move to" in one.evidence]
    if any("begun" in one.evidence for one in moves):  # what moved nothing yet is in nobody's way
        settle = tuple(one.help for one in moves if one.help and "begun" in one.evidence)
        return [("Now, with the agent stopped: settle the move that was cut off", settle)]
    if len(moves) < len(cut_off):
        command = screen.command("snapshot restore", "--in-place", "--dry-run")
        return [("Now, with the agent stopped: see how far the restore came that was cut off", (command,))]
    mixed = _mixed_up(report)
    if mixed is not None:
        return [("Now:", mixed.advice[:1]), ("What there is:", ("mem0audit status",))]
    urgent = next((code for code in _TAKE_OUT if code in groups), None)
    if urgent is not None and "I208" not in groups and _anything_there(report):
        return [_take_out(report, screen, urgent), _move_off(report, urgent)]
    for code in ("I208", *_RISKS):
        for finding in groups.get(code, ()):
            if finding.help:
                return [("Now:", (finding.help,))]
    unread = _unread_store(report, screen)
    if unread is not None:
        return [unread]
    for incident in sorted(report.incidents, key=lambda i: -i.certainty):
        if "D302" in incident.codes and _count(report, "changes"):
            copy = keep_log_step(report.install.history.value, sqlite3_shell=screen.sqlite3_shell)
            steps: list[tuple[str, tuple[str, ...]]] = [
                ("Now: keep a copy of the log, which has their texts", (copy,))
            ]
            if "L106" in groups and _not_named(report):
                named = f"{screen.program} audit --config FILE"
                steps.append(("If the agent's configuration names another folder, look there:", (named,)))
            if "Q951" in groups:
                why = f"{screen.program} explain Q951"
                steps.append(("Before anything is added back: is the server's volume the right one?", (why,)))
            back = _go_back(report, screen, len(groups.get("D302", ())))
            return steps + (back or [_add_back(screen)])
        if incident.advice:
            back = _go_back(report, screen, None) if incident.kind == "reset" else []
            return [("Now:", (incident.advice[0],)), *back]
    for findings in groups.values():
        for finding in findings:
            if finding.help and finding.severity >= Severity.MEDIUM:
                return [("Now:", (finding.help,))]
    return []


def _go_back(report: Report, screen: Screen, lost: int | None) -> list[tuple[str, tuple[str, ...]]]:
    """To the last good snapshot from before so many memories were lost, or (`lost` is None) from before a reset;
    none where there is no such one. What was written since is then in what is put aside."""
    known = report.snapshots
    if known is None:
        return []
    newest = known.before_reset(_count(report, "changes") or 0) if lost is None else known.before_loss(lost)
    if newest is None or newest.taken_at is None:
        return []
    command = screen.command("snapshot restore", newest.path, "--in-place", "--dry-run")
    return [(f"Then, to go back to the snapshot of {shown(newest.taken_at)}:", (command,))]


def _add_back(screen: Screen) -> tuple[str, tuple[str, ...]]:
    """Where no snapshot is from before the loss: the log still has the texts."""
    return "Then, to see whose they are and what can come back:", (screen.command("recover", "--dry-run"),)


def _unread_store(report: Report, screen: Screen) -> tuple[str, tuple[str, ...]] | None:
    """What makes a store readable that could not be read: until then nobody knows what is missing."""
    whys = {n.what: n.why for n in report.not_checked if n.gap}
    server = report.install.server_url
    unread = [path for path in (*report.store_paths, *([server.value] if server else [])) if path in whys]
    if not unread and server is not None:  # one of its collections
        unread = [path for path in whys if path.startswith(f"{server.value}/collections/")]
    if not unread:
        return None
    if any("permission denied" in whys[path] for path in unread):
        paths = ["--history", report.install.history.value]
        if report.install.vectors is not None:
            paths += ["--qdrant-path", report.install.vectors.value]
        return "Now:", (f"sudo mem0audit audit {shell_words(paths)}",)
    path = unread[0]
    return f"Now: see why {path} cannot be read ({whys[path]}), and audit again", ()


def _anything_there(report: Report) -> bool:
    """Whether there is something to take out: a memory, or a change in the log."""
    return bool(_count(report, "memories") or _count(report, "changes"))


def _take_out(report: Report, screen: Screen, urgent: str) -> tuple[str, tuple[str, ...]]:
    """Copies both stores to a folder that lasts, with the agent running: as a snapshot, and by hand where this
    version refuses to take one."""
    install = report.install
    keepers = sorted(report.holders, key=lambda h: (not h.private_mounts, h.how != "lock"))
    holder = keepers[0] if keepers else None
    private = holder is not None and holder.private_mounts
    if _takes_snapshots(report, private):
        to = _snapshot_folder(report)
        folder = to or NO_FOLDER
        if private:
            # root has another home and none of the user's settings: every path is named, and the agent's is not ours
            history, vectors_folder = (_inside(path, holder) for path in report.store_paths)
            words = ["--history", history, "--qdrant-path", vectors_folder, "--to", folder]
            command = f"mem0audit snapshot create {' '.join(map(shell_word, words))}"
            return f"{_when(report, urgent)}, as root: copy both stores as a pair to a folder that lasts", (
                command,
            )
        what = "copy both stores as a pair to "
        what += to or "a folder that lasts (put its name in)"
        return f"{_when(report, urgent)}: {what}", (f"mem0audit snapshot create --to {shell_word(folder)}",)
    to = _durable_folder(report, "mem0-copy")
    entities = [install.entities_collection] if _count(report, "entities") else []
    collections = list(report.collections) or [install.collection.value, *entities]
    vectors = install.vectors.value if install.vectors else ""
    steps = manual_snapshot_steps(
        install.history.value,
        vectors,
        collections,
        to or "/WHERE/IT/LASTS/mem0-copy",
        holder=holder,
        sqlite3_shell=screen.sqlite3_shell,
    )
    label = _when(report, urgent)
    if private:
        label += ", as root"
    where = f"copy both stores to {to}" if to else "copy both stores to a folder that lasts (put its name in)"
    return f"{label}: {where}", steps


def _move_off(report: Report, urgent: str) -> tuple[str, tuple[str, ...]]:
    """What comes after the copy: the move, where one command does it, else the page that says how."""
    if urgent == "L110":
        return "Then, so that no start deletes it:", (f"mem0audit explain {urgent}",)
    keepers = sorted(report.holders, key=lambda h: (not h.private_mounts, h.how != "lock"))
    holder = keepers[0] if keepers else None
    private = holder is not None and holder.private_mounts
    if urgent == "L103" or not _takes_snapshots(report, private):
        return "Then, to move it for good:", (f"mem0audit explain {urgent}",)
    words = ["--to", _durable_folder(report, "mem0-qdrant") or NO_FOLDER.replace("snapshots", "qdrant")]
    log = _place(report, report.install.history.value)
    if log is None or ground(log, report.holders)[1] is False:
        words.append("--with-history")
    label = "Then, to move it for good:"
    if private:
        history, vectors = (_inside(path, holder) for path in report.store_paths)
        words = ["--history", history, "--qdrant-path", vectors, *words]
        label = "Then, as root, to move it for good:"
    return label, (f"mem0audit relocate {' '.join(map(shell_word, words))}",)


def _inside(path: str, holder: Holder | None) -> str:
    """A store's path as it is seen from here where a process has it open in a root of its own."""
    if holder is None or path.startswith("/proc/"):
        return path
    held = any(p == path or p.startswith(path.rstrip("/") + "/") for p in holder.paths)
    return f"/proc/{holder.pid}/root{path}" if held else path


def _when(report: Report, urgent: str) -> str:
    label = "Now, with the agent running" if report.holders else "Now"
    if urgent == "L110":
        label += ", and without restarting it" if report.holders else ", and without starting the agent"
    return label


def _takes_snapshots(report: Report, private: bool) -> bool:
    """Whether `snapshot create` would take this install: both stores there (in the agent's own root, where it has one),
    and the log no larger than it copies beside an agent."""
    places = [_place(report, path) for path in report.store_paths]
    server = report.install.server_url is not None and report.versions.get("qdrant") is not None
    if len(places) + server < 2 or any(place is None or place.problem for place in places):
        return False
    if not private and any(not place.exists for place in places if place is not None):
        return False
    return places[0] is not None and (places[0].size_bytes or 0) <= BY_PAGES_BYTES


NO_FOLDER = "/WHERE/IT/LASTS/mem0-snapshots"


def _snapshot_folder(report: Report) -> str | None:
    """The folder for snapshots that is set, else a new one that lasts; None where none is known to."""
    if report.snapshots is not None and report.snapshots.folders:
        return report.snapshots.folders[0]
    return _durable_folder(report, "mem0-snapshots")


def _durable_folder(report: Report, name: str) -> str | None:
    """A new folder beside mem0's own, where the log's place was seen to last; None where it was not."""
    place = _place(report, report.install.history.value)
    if place is None or ground(place, report.holders)[1] is not True:
        return None
    return posixpath.join(posixpath.dirname(report.install.mem0_dir.value.rstrip("/")) or "/", name)


# --- Evidence -----------------------------------------------------------------------------------


def _incidents(report: Report, screen: Screen) -> list[str]:
    lines = []
    for index, incident in enumerate(report.incidents, 1):
        certain = incident.certainty.label
        head = screen.wrap(incident.name, hanging=4, first=f"{index:>2}  ")
        if len(head[-1]) + 3 + len(certain) <= screen.width:
            head[-1] = f"{head[-1].ljust(screen.width - len(certain))}{certain}"
        else:
            head.append(certain.rjust(screen.width))
        lines += head
        for sentence in incident.evidence:
            lines += screen.wrap(sentence, indent=4, hanging=6)
        for step in incident.advice if report.copy is None else ():
            lines += screen.steps(step, 4)
    return lines


def _explained(report: Report, finding: Finding) -> int | None:
    """The number of the incident that stands for this finding, None if none does."""
    for index, incident in enumerate(report.incidents, 1):
        if finding.code in incident.codes and _belongs(incident, finding):
            return index
    return None


def _belongs(incident: Incident, finding: Finding) -> bool:
    return finding.memory_id is None or not incident.memory_ids or finding.memory_id in incident.memory_ids


def _groups(report: Report, screen: Screen, *, evidence: bool) -> list[str]:
    groups = _codes(report)
    name_width = max(len(_name(code)) for code in groups) if groups else 0
    count_width = max(len(number(len(findings))) for findings in groups.values()) if groups else 0
    lines, hidden = [], False
    for code, findings in groups.items():
        severity = max(f.severity for f in findings)
        numbers = [_explained(report, f) for f in findings]
        page = screen.ours(f"mem0audit explain {code}")
        head = f" {severity.label:<8}  {code} {_name(code):<{name_width}}  {number(len(findings)):>{count_width}}"
        where = _where(findings, numbers)
        ends = [where] * bool(where) + [page] * (evidence and (severity > Severity.INFO or screen.verbose))
        first = screen.severity(severity, head)
        used = len(head)
        rest: list[str] = []
        for end in ends:
            if not rest and used + 2 + len(end) <= screen.width:
                first += "  " + (screen.faint(end) if end is page else end)
                used += 2 + len(end)
            else:
                rest.append(" " * 11 + end)
        lines += [first, *rest]
        if evidence and (severity > Severity.INFO or screen.verbose):
            shown = _evidence(code, findings, numbers, report, screen)
            lines += shown
            hidden = hidden or not shown
        elif evidence:
            hidden = True
    if hidden and not screen.verbose:
        lines += _labelled(" Each of them:", (screen.command("audit", "--verbose"),), screen)
    return lines


def _where(findings: list[Finding], numbers: list[int | None]) -> str:
    seen = sorted({n for n in numbers if n is not None})
    words = []
    if seen and None in numbers:
        explained = sum(n is not None for n in numbers)
        words.append(f"{number(explained)} of them: see {', '.join(map(str, seen))}")
    elif seen:
        words.append(f"see {', '.join(map(str, seen))}")
    paths = {f.path for f in findings}
    if len(paths) == 1 and all(f.memory_id is None for f in findings):
        words.append(escape(next(iter(paths)) or ""))
    return "  ".join(w for w in words if w)


def _evidence(
    code: str, findings: list[Finding], numbers: list[int | None], report: Report, screen: Screen
) -> list[str]:
    """The first few findings of a rule that no incident explains, or with `verbose` all of them."""
    unexplained = [f for f, n in zip(findings, numbers, strict=True) if n is None]
    several_paths = len({f.path for f in findings}) > 1
    shown = findings if screen.verbose else unexplained[:SHOWN]
    lines = []
    for finding in shown:
        lines += _one(finding, screen, several_paths)
    more = len(findings) - len(shown)
    if more and shown:
        again = screen.command("audit", "--select", code, "--verbose")
        lines.append(" " * 11 + f"…  {number(more)} more: {again}")
    said = {f"mem0audit explain {code}", *(step for i in report.incidents for step in i.advice)}
    helps = dict.fromkeys(f.help for f in shown if f.help and f.help not in said and report.copy is None)
    for text in list(helps)[: None if screen.verbose else SHOWN]:
        lines += screen.steps(text, 11)
    return lines


def _one(finding: Finding, screen: Screen, several_paths: bool) -> list[str]:
    parts = []
    if finding.memory_id is not None:
        parts.append(escape(clipped(finding.memory_id, _MOST_ID)))
    elif several_paths and finding.path is not None:
        parts.append(escape(finding.path))
    if finding.subject is not None:
        parts.append(escape(finding.subject))
    if finding.memory_id is not None and several_paths and screen.verbose and finding.path is not None:
        parts.append(escape(finding.path))
    facts = [f"{escape(k)} {escape(evidence_value(k, v))}" for k, v in finding.evidence.items()]
    text = "  ".join(p for p in parts if p)
    line = "  ".join([text] * bool(text) + [", ".join(facts)] * bool(facts))
    if not line:
        return []
    if 11 + len(line) <= screen.width:
        return [" " * 11 + line]
    return [*([" " * 11 + text] if text else []), *screen.fill(facts, 13 if text else 11)]


# --- What was not looked at ---------------------------------------------------------------------


def _gaps(report: Report, screen: Screen) -> list[str]:
    lines = []
    for what, why in _by_reason(n for n in report.not_checked if n.gap):
        lines += screen.wrap(f"{', '.join(_ranges(what))}: {why}", indent=1, hanging=3)
    return lines


def _by_reason(items: Iterable[NotChecked]) -> list[tuple[list[str], str]]:
    reasons: dict[str, list[str]] = {}
    for item in items:
        reasons.setdefault(item.why, []).append(item.what)
    return [(what, why) for why, what in reasons.items()]


def _last_line(report: Report, screen: Screen) -> list[str]:
    quiet = [n for n in report.not_checked if not n.gap and (screen.verbose or not _beside_the_point(n))]
    gaps = [n for n in report.not_checked if n.gap]
    text = plural(len(report.checked), "rule") + " checked"
    if quiet:
        reasons = [f"{', '.join(_ranges(what))} ({why})" for what, why in _by_reason(quiet)]
        text += f", {len(quiet)} not: {', '.join(reasons)}"
    if gaps:
        text += f"; {len(gaps)} could not be, above"
    text += f". {seconds(report.seconds)}"
    return screen.wrap(text)


def _beside_the_point(item: NotChecked) -> bool:
    """A rule about servers where there is none."""
    return item.why == NO_SERVER


def _ranges(codes: Sequence[str]) -> list[str]:
    """Three or more codes in a row as one: B901 to B907 becomes `B901-B907`."""
    out: list[list[str]] = []
    for code in codes:
        last = out[-1][-1] if out else ""
        follows = last[:1] == code[:1] and last[1:].isdigit() and code[1:].isdigit()
        if follows and int(code[1:]) == int(last[1:]) + 1:
            out[-1].append(code)
        else:
            out.append([code])
    return [w for run in out for w in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)]


# --- Other endings ------------------------------------------------------------------------------


def _short(report: Report, screen: Screen) -> bool:
    """Whether a line or two say it all: everything was read, the stores agree, all of it lasts."""
    return (
        not screen.verbose
        and not report.incidents
        and not any(n.gap for n in report.not_checked)
        and all(f.severity == Severity.INFO or f.code == "B901" for f in report.findings)
    )


def _last_snapshot(report: Report) -> str:
    """The newest good snapshot in a sentence, or that there is none; nothing where nobody looked."""
    known = report.snapshots
    if known is None or known.not_read:
        return ""
    newest = known.newest_good
    if newest is None or newest.taken_at is None:
        return " No snapshot yet." if any(f.code == "B901" for f in report.findings) else ""
    verified = ", verified" if newest.verified_at is not None else ""
    return f" Last snapshot {age(known.seen_at - newest.taken_at)} ago{verified}."


def _good(report: Report, screen: Screen) -> list[str]:
    stored, changes = _count(report, "memories"), _count(report, "changes")
    agree = set(_AGREE) <= set(report.checked)
    if agree and stored is not None and changes is not None:
        text = f"{memories(stored)} and {plural(changes, 'change')} agree."
    else:
        text = "Nothing found."
    lasting = [ground(p, report.holders)[1] for p in report.places if p.path in report.store_paths]
    if report.copy is not None:
        text += f" As of {_as_of(report.copy)}."
    elif lasting and all(lasting):
        alone = report.install.server_url is not None
        text += f" The log is durable. {_nothing_at_risk(report)}" if alone else " Durable."
    text += _last_snapshot(report)
    tail = []
    notes = [code for code in _codes(report) if code != "B901"]
    if notes:
        count = sum(1 for f in report.findings if f.code != "B901")
        tail.append(f"{plural(count, 'note')} ({', '.join(notes)})")
    unchecked = {n.what for n in report.not_checked if not _beside_the_point(n)}
    if unchecked:
        tail.append(f"{plural(len(unchecked), 'rule')} not checked")
    if any(f.code == "B901" for f in report.findings):
        text += "".join(f" {part[:1].upper()}{part[1:]}." for part in tail)
        take = screen.command("snapshot create", "--to", _snapshot_folder(report) or NO_FOLDER)
        return [*screen.wrap(f"{text} {_rules(report)}"), f"Take one:   {take}"]
    lines = screen.wrap(f"{text} {_rules(report)}")
    if tail:
        more = screen.command("audit", "--verbose")
        said = ", ".join(tail) + ":"
        lines += [f"{said} {more}"] if len(said) + 1 + len(more) <= screen.width else [said, f"   {more}"]
    return lines


def _nothing_found(report: Report, screen: Screen) -> list[str]:
    install = report.install
    lines = [screen.bold("No mem0 install found here.") + " Nothing was audited."]
    rows = [["history", escape(install.history.value), f"not there ({escape(install.history.decided_by)})"]]
    if install.vectors is not None:
        decided = escape(install.vectors.decided_by)
        rows.append(["vectors", escape(install.vectors.value), f"not there ({decided})"])
    lines += table(rows, indent=1)
    if report.candidates:
        lines += ["", screen.bold("Other stores on this machine")]
        lines += candidate_lines(report.candidates, screen)
    else:
        where = (
            "No other store was found on this machine, among running processes and homes."
            if _visible(report)
            else "No other store was found among what this user may see: run as root to look into other "
            "people's processes and homes."
        )
        lines += ["", *screen.wrap(where)]
    gaps = _by_reason(report.not_checked)
    for what, why in gaps:
        if all(w in CATALOGUE or w in report.store_paths for w in what):
            continue
        lines += screen.wrap(f"not looked at: {', '.join(what)}: {why}", indent=1, hanging=3)
    lines += ["", "If yours is elsewhere, name it:"]
    lines += screen.steps("mem0audit audit --history PATH/history.db --qdrant-path FOLDER", 3)
    lines += screen.steps(
        "mem0audit audit --config FILE   # the dict given to Memory.from_config, as YAML, JSON or TOML", 3
    )
    return lines


def _rules(report: Report) -> str:
    return f"{plural(len(report.checked), 'rule')}, {seconds(report.seconds)}"
