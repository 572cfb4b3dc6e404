"""What the commands beside `audit` print for people: explain, status, show, users, log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mem0audit.core.catalogue import CATALOGUE, Rule, page_lines
from mem0audit.core.model import Candidate, HistoryRow, Install, SeenSnapshot
from mem0audit.core.points import clipped
from mem0audit.core.times import age, shown
from mem0audit.report.escape import escape, escape_lines, without_surrogates
from mem0audit.report.moved import moved_lines
from mem0audit.report.screen import Screen, table
from mem0audit.report.steps import life_lines, quoted
from mem0audit.report.words import evidence_value, ground, memories, number, plural, size, stamp

if TYPE_CHECKING:  # data only: explain must not load what these operations read with
    from mem0audit.operations.log import Log
    from mem0audit.operations.show import Shown
    from mem0audit.operations.status import ServerSeen, Status
    from mem0audit.operations.users import Users


def explain_text(rules: Sequence[Rule], screen: Screen, *, whole: bool) -> str:
    """The pages of rules, or with `whole` False one line a rule."""
    if not whole:
        rows = [[r.code, r.name, r.severity.label] for r in rules]
        lines = table(rows)
        if screen.colour:
            lines = [screen.severity(r.severity, line) for r, line in zip(rules, lines, strict=True)]
        return "\n".join([*lines, "", f"The page of one: {screen.program} explain CODE"]) + "\n"
    pages = []
    for rule in rules:
        head, *rest = page_lines(rule, screen.width)
        pages.append("\n".join([screen.bold(head), *(_page_line(line, screen) for line in rest)]))
    return "\n\n".join(pages) + "\n"


def _page_line(line: str, screen: Screen) -> str:
    """A line of a page; only whole commands are spelled as the user called us, so that prose keeps its width."""
    return screen.ours(line) if line.lstrip().startswith(("mem0audit ", "sudo mem0audit ")) else line


# --- status -------------------------------------------------------------------------------------


def status_text(found: Status, screen: Screen) -> str:
    """Every place with what it stands on, then the agent, then other stores."""
    install = found.install
    lines = []
    width = max(len(s.role) for s in found.places)
    for stand in found.places:
        place = stand.place
        words, lasts = ground(place, found.holders)
        if not place.exists and place.problem is None and stand.role not in ("history", "vectors"):
            words, lasts = "not there", None
        lines.append(f"{stand.role:<{width}}  {escape(place.path)}")
        if place.link_target:
            lines.append(f"{'':<{width}}  -> {escape(place.link_target)}")
        facts = [f"from {escape(stand.decided_by)}"]
        if place.size_bytes is not None:
            facts.append(size(place.size_bytes))
        if place.modified_at is not None:
            facts.append(f"changed {shown(place.modified_at)}")
        said = screen.columns([*facts, words], indent=width + 2)
        if lasts is False:
            said[-1] = said[-1].removesuffix(words) + screen.alarm(words)
        lines += said
        for warning in (place.readable_by_others, place.replaceable_parent):
            if warning:
                what = "others can read it" if warning is place.readable_by_others else "others may replace"
                lines += screen.wrap(f"{what}: {warning}", indent=width + 2)
    if found.server is not None:
        lines += _server(found.server, width, screen)
    elif install.vectors is None:
        lines.append(f"{'vectors':<{width}}  {escape(install.provider)}: not Qdrant, so only the log is read")
    collection = install.collection
    said = [escape(collection.value), f"from {escape(collection.decided_by)}"]
    layout = None if found.server is None else found.server.layout
    if layout is not None and layout.problem is None:
        if collection.value in layout.aliases:
            said.append(f"an alias of {escape(layout.aliases[collection.value])}")
        elif all(one.name != collection.value for one in layout.collections):
            said.append("not there")
    lines.append(f"{'collection':<{width}}  {'  '.join(said)}")
    lines += ["", *moved_lines(found.moved, screen)]
    lines += [*_kept(found, screen), *_ledger(found, screen), *_agent(found, screen)]
    if found.candidates:
        lines += ["", screen.bold("Other stores on this machine"), *candidate_lines(found.candidates, screen)]
    if found.not_checked:
        lines += ["", screen.bold("Not looked at")]
        for item in found.not_checked:
            lines += screen.wrap(f"{item.what}: {item.why}", indent=1, hanging=3)
    lines += ["", f"Both stores side by side: {screen.command('audit')}"]
    return "\n".join(lines) + "\n"


def _server(seen: ServerSeen, width: int, screen: Screen) -> list[str]:
    layout = seen.layout
    facts = [f"from {escape(seen.address.decided_by)}"]
    facts.append(f"API key from {escape(seen.key_from)}" if seen.key_from is not None else "no API key")
    if layout.version is not None:
        facts.append(f"Qdrant {escape(layout.version)}")
    lines = [f"{'vectors':<{width}}  {escape(seen.address.value)}", *screen.columns(facts, indent=width + 2)]
    if layout.problem is not None:
        return lines + screen.wrap(f"not read: {layout.problem.detail}", indent=width + 2)
    for info in layout.collections:
        if info.foreign:
            continue
        facts = [f"{info.name}:"]
        if info.server is None:
            facts.append("the key may not see it")
        else:
            facts += [] if info.server.points is None else [f"about {plural(info.server.points, 'point')},"]
            facts += [] if info.dims is None else [f"{info.dims} dimensions,"]
            facts.append(info.server.status)
        lines += screen.wrap(" ".join(facts), indent=width + 2)
    others = [info.name for info in layout.collections if info.foreign]
    if others:
        lines += screen.wrap(f"other collections, left alone: {', '.join(others)}", indent=width + 2)
    return lines


def _ledger(found: Status, screen: Screen) -> list[str]:
    seen = found.ledger
    if seen is None:
        return []
    last = (
        "no seal"
        if seen.sealed_at is None
        else f"{plural(seen.seals, 'seal')}, the last {shown(seen.sealed_at)}"
    )
    return screen.wrap(f"ledger     {seen.path}: {last}", hanging=11)


def _kept(found: Status, screen: Screen) -> list[str]:
    """The snapshots, and what a run that was cut off left."""
    lines: list[str] = []
    known = found.snapshots
    for folder in known.folders if known is not None else ():
        assert known is not None
        there = [one for one in known.snapshots if one.path.startswith(folder.rstrip("/") + "/")]
        lines += screen.wrap(f"snapshots  {folder}: {_of_folder(there, known.seen_at)}", hanging=11)
    for path in known.unfinished if known is not None else ():
        lines += screen.wrap(
            f"unfinished {path}: a run is at work there, or was cut off; then the next `snapshot create` removes it.",
            hanging=11,
        )
    for path in found.put_aside:
        lines += screen.wrap(f"replaced   {path}", hanging=11)
    if found.put_aside:
        lines += screen.wrap(
            "What a restore replaced: it still holds what was deleted since. When all is well:", indent=11
        )
        lines.append(" " * 11 + screen.command("snapshot restore", "--discard-replaced"))
    for path in found.moved_aside:
        lines += screen.wrap(f"moved from {path}", hanging=11)
    if found.moved_aside:
        lines += screen.wrap("What a move put aside. When all is well:", indent=11)
        lines.append(" " * 11 + screen.command("relocate", "--discard-replaced"))
    for left in found.left_moves:
        stopped = "it had moved nothing" if left.cut.course == "clean" else "keep the agent stopped"
        if left.to_server:
            stopped = "the old store is as it was, what was carried lies there"
        said = f"MOVE CUT OFF      to {left.to}: {stopped}."
        lines += [screen.alarm(line) for line in screen.wrap(said, hanging=11)]
        if left.cut.problem is not None:
            lines += screen.wrap(f"{left.cut.problem}", indent=11)
        elif left.command is None:
            lines += screen.wrap("The same relocate again clears away what it left.", indent=11)
        if left.command is not None:
            lines.append(f"How far it came, and what is next:   {screen.ours(left.command)} --dry-run")
    cut = found.interrupted
    if cut is not None:
        lines += [
            screen.alarm(line)
            for line in screen.wrap(f"RESTORE CUT OFF   {cut.folder}: keep the agent stopped.", hanging=11)
        ]
        lines.append(
            f"How far it came, and what is next:   {screen.command('snapshot restore', '--in-place', '--dry-run')}"
        )
    return lines


def _of_folder(there: Sequence[SeenSnapshot], now: float) -> str:
    good = [one for one in there if one.good and one.taken_at is not None]
    if not there:
        return "none of this install"
    if not good or good[-1].taken_at is None:
        return f"{len(there)}, and no good one"
    verified = ", verified" if good[-1].verified_at is not None else ", not verified"
    return f"{len(there)}, the last good one {age(now - good[-1].taken_at)} ago{verified}"


def _agent(found: Status, screen: Screen) -> list[str]:
    lines = []
    for holder in found.holders:
        who = [f"pid {holder.pid}"]
        who += [holder.unit] if holder.unit else []
        who += [f"container {holder.container}"] if holder.container else []
        who += [f"user {holder.user}"] if holder.user else []
        who += [f"since {shown(holder.started_at)}"] if holder.started_at is not None else []
        what = "holds the lock" if holder.how == "lock" else "has it open"
        lines += screen.wrap(f"open by    {', '.join(who)}: {what}", hanging=11)
        lines += screen.wrap(holder.command, indent=11, hanging=13)
        if holder.private_mounts:
            lines += screen.wrap(
                "it lives in a mount namespace of its own: the same path may be another folder to it.",
                indent=11,
            )
    unseen = any(n.what == "who has it open" for n in found.not_checked)
    if not found.holders:
        lines.append("open by    " + ("not visible from here" if unseen else "no process"))
    agent = found.agent
    mem0 = f"mem0ai {agent.mem0_version or 'not known'}, qdrant-client {agent.client_version or 'not known'}"
    lines += screen.wrap(f"agent      {mem0} ({agent.source})", hanging=11)
    if agent.interpreter:
        lines.append(f"           {escape(agent.interpreter)}")
    return lines


def candidate_lines(candidates: Sequence[Candidate], screen: Screen) -> list[str]:
    """Stores that are not this install's, each with the command that looks at it."""
    lines = []
    for index, candidate in enumerate(candidates):
        count = f", {memories(candidate.memories)}" if candidate.memories is not None else ""
        lines.append(f" {candidate.kind}  {escape(candidate.path)}")
        lines += screen.wrap(f"{candidate.found_by}{count}", indent=10)
        # Two halves of one store have one command: it stands below the second.
        following = candidates[index + 1].command if index + 1 < len(candidates) else None
        if candidate.command and candidate.command != following:
            lines += screen.steps(candidate.command, 10)
    return lines


# --- users --------------------------------------------------------------------------------------


def users_text(found: Users, screen: Screen) -> str:
    """Scopes, the largest first, then the totals of users that have several."""
    lines = []
    rows = [["user", "agent", "run", "memories", ""]]
    rows += [
        [
            owner_word(scope.user_id),
            owner_word(scope.agent_id),
            owner_word(scope.run_id),
            number(scope.memories),
            f"UNREACHABLE: {escape(scope.unreachable)}" if scope.unreachable else "",
        ]
        for scope in found.scopes
    ]
    printed = table(rows, right=(3,))
    lines += [screen.bold(printed[0]), *printed[1:]]
    largest: dict[str, int] = {}
    for scope in found.scopes:
        largest[repr(scope.user_id)] = max(largest.get(repr(scope.user_id), 0), scope.memories)
    several = [(user, count) for user, count in found.per_user if count != largest[repr(user)]]
    if several:
        lines += ["", screen.bold("Users in several scopes, in all")]
        lines += table([[owner_word(user), number(count)] for user, count in several], right=(1,))
    total = (
        f"{memories(found.memories)} in {plural(len(found.scopes), 'scope')}, collection {found.collection}"
    )
    lines += ["", *screen.wrap(total)]
    lost = sum(s.memories for s in found.scopes if s.unreachable)
    if lost:
        lines += screen.wrap(
            f"{memories(lost)} cannot be listed or deleted by owner: delete_all reports success and leaves them."
        )
        lines.append(f"   {screen.program} explain D308")
    for item in found.not_checked:
        lines += screen.wrap(f"not counted: {item.what}: {item.why}")
    return "\n".join(lines) + "\n"


def owner_word(value: object) -> str:
    """An owner id: `-` for none; in quotes where it is not plain text, so that spaces and types show."""
    if value is None:
        return "-"
    if isinstance(value, str):
        plain = value == value.strip() and value and not value.startswith(('"', "-"))
        shown = escape(clipped(value, _MOST_OWNER))
        return shown if plain else f'"{shown}"'
    return f"{escape(clipped(value, _MOST_OWNER))} ({type(value).__name__})"


# --- show ---------------------------------------------------------------------------------------

_MOST_TEXT = 4000
_MOST_OWNER = 80
"""Characters of an owner or an event in a table: one of 10 MB would be the width of every line."""


def show_text(found: Shown, screen: Screen) -> str:
    """One memory with its text, behind a margin that no text can forge."""
    lines = [screen.bold(f"memory {escape(found.memory_id)}")]
    for item in found.not_checked:
        lines += screen.wrap(f"not read: {item.what}: {item.why}")
    if not found.stored:
        lines += ["", "not in the store" + (" (as far as it could be read)" if found.not_checked else "")]
    for stored in found.stored:
        loads = "" if stored.loads else ", an older row of the same id: Qdrant does not load it"
        which = f", row {stored.rowid}" if stored.rowid else ""
        lines += ["", f"collection {escape(stored.collection)}{which}{loads}"]
        if stored.problem is not None:
            lines += screen.wrap(f"does not decode: {stored.problem}", indent=2)
            continue
        lines += _payload(stored.payload)
        names = f", {', '.join(stored.vector.names)}" if stored.vector.names else ""
        flaw = f", {stored.vector.flaw.upper()}" if stored.vector.flaw else ""
        dims = "none" if stored.vector.dims is None else f"{stored.vector.dims} dimensions"
        lines.append(f"  vector  {dims}{escape(names)}{flaw}")
    lines += ["", f"history, {plural(len(found.history), 'row')} in the order they were written"]
    for row in found.history:
        lines += _history_row(row, screen)
    for entity in found.entities:
        lines += ["", f"entity {escape(entity.entity_id)} in {escape(entity.collection)}"]
        lines += _payload({k: v for k, v in entity.payload.items() if k != "linked_memory_ids"})
        lines.append(f"  links {memories(entity.links)}")
    if found.ledger is not None:
        from mem0audit.report.ledger import fact_lines

        lines += ["", "ledger, as of the last audit", *fact_lines(found.ledger, screen, found.now)]
    lines += ["", "findings" if found.findings else "no finding for it"]
    for finding in found.findings:
        rule = CATALOGUE.get(finding.code)
        head = f"  {finding.severity.label:<8}  {finding.code} {rule.name if rule else ''}"
        lines.append(screen.severity(finding.severity, head))
        facts = [f"{escape(k)} {escape(evidence_value(k, v))}" for k, v in finding.evidence.items()]
        lines += screen.fill(facts, 12)
        if finding.help:
            lines += screen.steps(finding.help, 12)
    for incident in found.incidents:
        lines += screen.wrap(f"part of: {incident.name} ({incident.certainty.label})", indent=2, hanging=4)
    return "\n".join(lines) + "\n"


def timeline_text(found: Shown, screen: Screen) -> str:
    """One memory's changes, each with what it said from then on; then what the store holds of it now."""
    lines = [screen.bold(f"memory {escape(found.memory_id)}")]
    for item in found.not_checked:
        lines += screen.wrap(f"not read: {item.what}: {item.why}")
    lines += ["", *life_lines(found.timeline or ())]
    now = [stored for stored in found.stored if stored.loads and stored.problem is None]
    for stored in now:
        text = stored.payload.get("data")
        lines += ["", f"  now  in the store, collection {escape(stored.collection)}"]
        lines += quoted(text if isinstance(text, str) else None, gone=False)
    if not now:
        lines += [
            "",
            "  now  not in the store" + (" (as far as it could be read)" if found.not_checked else ""),
        ]
    if found.findings:
        codes = ", ".join(dict.fromkeys(finding.code for finding in found.findings))
        lines += [
            "",
            *screen.wrap(f"Findings about it: {codes}. Their evidence is shown without --timeline."),
        ]
    return "\n".join(lines) + "\n"


def _payload(payload: Mapping[str, Any]) -> list[str]:
    if not payload:
        return []
    lines = []
    text = payload.get("data")
    if isinstance(text, str):
        lines += _text("text", text)
    for key, value in payload.items():
        if key == "data" and isinstance(value, str):
            continue
        said = (
            stamp(value)
            if isinstance(value, str)
            else clipped(value, _MOST_TEXT)
            if value is not None
            else "none"
        )
        lines += _text(key, said)
    return lines


def _text(name: str, text: str) -> list[str]:
    """A field: on its line where it is one short line, else below it behind a margin."""
    cut = text[:_MOST_TEXT]
    parts = escape_lines(cut)
    more = len(text) - len(cut)
    tail = [f"    … {number(more)} more characters; all of it: --format json --text"] if more else []
    if len(parts) == 1 and not tail:
        return [f"  {escape(name)}  {parts[0]}"]
    return [f"  {escape(name)}", *(f"    │ {part}" for part in parts), *tail]


def _history_row(row: HistoryRow, screen: Screen) -> list[str]:
    lines = [f"  row {row.rowid}  {screen.bold(escape(clipped(row.event, _MOST_OWNER)))}"]
    for name in HistoryRow._fields[1:]:
        value = getattr(row, name)
        if name in ("event", "memory_id") or value is None or (name == "is_deleted" and not value):
            continue
        lines += ["  " + line for line in _text(name, stamp(value) if isinstance(value, str) else str(value))]
    return lines


# --- log ----------------------------------------------------------------------------------------


def log_text(found: Log, screen: Screen) -> str:
    """The file, its tables and schema, counts, and the newest changes one field a line."""
    file = found.file
    state = file.file
    facts = [size(state.size_bytes)]
    facts += [f"journal mode {state.journal_mode}"] if state.journal_mode else []
    facts += [f"read {state.way}"] if state.way else []
    lines = [screen.bold(escape(state.path)), f"  {', '.join(facts)}"]
    if state.hot_journal:
        lines.append(
            "  a hot journal: its last writer died in the middle of a write (mem0audit explain I203)"
        )
    if state.problem is not None:
        lines += screen.wrap(f"not read whole: {state.problem.detail}", indent=2)
    if found.problem is not None:
        lines += screen.wrap(f"its rows were not read: {found.problem}", indent=2)
    lines += ["", screen.bold("tables")]
    rows = [
        [escape(name), "not counted" if count is None else plural(count, "row")]
        for name, count in sorted(file.tables.items())
    ]
    lines += table(rows, indent=2) or ["  none: this is the wrong file (no mem0 has written to it)"]
    if file.tables and file.schema is None:
        lines.append("  no table history: this is not mem0's log")
    if file.schema is not None:
        lines.append(f"  history has {escape(file.schema)}")
    for stranded in file.stranded:
        lines += screen.wrap(
            f"{stranded.name} was left by an interrupted migration, and has {number(stranded.missing_rows)} rows"
            " that history lacks (mem0audit explain I205).",
            indent=2,
        )
    if file.create_statements:
        lines += ["", screen.bold("schema")]
        for statement in file.create_statements.values():
            lines += [f"  {line}" for line in escape_lines(statement + ";")]
    if found.events:
        lines += ["", screen.bold("changes by event")]
        lines += table(
            [[escape(clipped(e, _MOST_OWNER)) or "NULL", number(n)] for e, n in found.events.items()],
            indent=2,
            right=(1,),
        )
    if found.newest:
        lines += ["", screen.bold(f"newest {len(found.newest)}, the latest first")]
        for row in found.newest:
            lines += [f"  row {row.rowid}"]
            for name in HistoryRow._fields[1:]:
                if name not in file.columns and getattr(row, name) is None:
                    continue
                value = getattr(row, name)
                lines += ["  " + line for line in _text(name, "NULL" if value is None else str(value))]
    return screen.ours("\n".join(lines) + "\n")


# --- config -------------------------------------------------------------------------------------


def config_text(
    install: Install, settings: str | None, mem0: Mapping[str, Any] | None, screen: Screen
) -> str:
    """Each value of the install with what decided it, then the mem0 config (already masked)."""
    rows = [[k, escape(v), escape(why)] for k, v, why in _decided(install)]
    lines = table(rows)
    lines += ["", f"settings file  {escape(settings) if settings else 'none'}"]
    if mem0 is not None:
        lines += ["", screen.bold("mem0 config, secrets masked")]
        lines += [
            f"  {line}" for line in json.dumps(without_surrogates(mem0), indent=2, default=str).split("\n")
        ]
    return "\n".join(lines) + "\n"


def _decided(install: Install) -> Iterator[tuple[str, str, str]]:
    for name in ("history", "vectors", "server_url", "collection", "mem0_dir"):
        origin = getattr(install, name)
        if origin is not None:
            yield name, origin.value, f"from {origin.decided_by}"
    if install.vectors is None and install.server_url is None:
        yield "vectors", install.provider, "another vector store than Qdrant"
    if install.server_key_from is not None:
        yield "api_key", "set", f"from {install.server_key_from}"
    for name in ("embedder_dims", "on_disk", "agent_python"):
        value = getattr(install, name)
        if value is not None:
            yield name, str(value), f"from {install.config_file or 'the settings or flags'}"


def validation_text(path: str, kind: str, lines: Sequence[tuple[str, str]], screen: Screen) -> str:
    """What is wrong with a configuration file, a line each."""
    out = [f"{escape(path)}: {escape(kind)}" + ("" if lines else ", no problem found")]
    for label, text in lines:
        out += screen.wrap(f"{label}: {text}", indent=2, hanging=4)
    return "\n".join(out) + "\n"
