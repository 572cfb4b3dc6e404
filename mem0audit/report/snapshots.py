"""What `snapshot` prints for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.marks import Checked, Kept
from mem0audit.core.model import Severity
from mem0audit.core.snapshot import Listed, Manifest, ServerCopy, ServerPlan, SnapshotPlan, Taken, Verdict
from mem0audit.core.times import age, instant
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.screen import Screen, table
from mem0audit.report.seal import seal_lines
from mem0audit.report.words import memories, plural, seconds, size


def plan_text(plan: SnapshotPlan, screen: Screen) -> str:
    """What `snapshot create` would do."""
    lines = [f"This would take {escape(plan.folder)}/{plan.name}, and has changed nothing.", ""]
    lines += table([[escape(source), "->", escape(target)] for source, target in plan.sources], indent=1)
    free = "not known" if plan.free_bytes is None else size(plan.free_bytes)
    wait = f"An agent that writes meanwhile waits {seconds(plan.hold_s)} at most."
    lines += [
        "",
        f"Both stores: {size(plan.size_bytes)}. Needed: {size(plan.needed_bytes)}. Free: {free}.",
        wait,
    ]
    lines += [f"To take it:   {screen.command('snapshot create', '--to', plan.folder)}"]
    return "\n".join(lines) + "\n"


def server_plan_text(plan: ServerPlan, screen: Screen) -> str:
    """What `snapshot create` would do where the points lie on a server."""
    assert plan.install.server_url is not None
    lines = [f"This would take {escape(plan.folder)}/{plan.name}, and has changed nothing.", ""]
    rows = [[escape(plan.install.history.value), size(plan.history_bytes), "->", "history.db"]]
    rows += [
        [escape(name), plural(points, "point"), "->", escape(path)]
        for _, name, points, path in plan.collections
    ]
    lines += table(rows, indent=1)
    free = "not known" if plan.free_bytes is None else size(plan.free_bytes)
    lines += [
        "",
        *screen.wrap(
            f"From Qdrant {plan.version} at {escape(plan.install.server_url.value)}, which takes a snapshot of each "
            "collection, gives it over and forgets it. What they weigh is known when it has made them. "
            f"Free here: {free}."
        ),
        f"To take it:   {screen.command('snapshot create', '--to', plan.folder)}",
    ]
    return "\n".join(lines) + "\n"


def taken_text(taken: Taken, screen: Screen) -> str:
    """What `snapshot create` did: the answer, where it is, how to check it."""
    manifest = taken.manifest
    lines = [f"{escape(taken.path)}   {size(manifest.size_bytes)}"]
    lines += screen.wrap(f"{holds(manifest)}, as of {manifest.created_at}. {_waited(manifest)}")
    lines += _settled(manifest, screen)
    lines += _faults(manifest.findings, screen)
    if taken.removed:
        lines += screen.wrap(
            f"Removed what {plural(len(taken.removed), 'run')} before it left unfinished: "
            f"{', '.join(taken.removed)}."
        )
    if taken.seal is not None:
        lines += seal_lines(taken.seal, screen)
    for note in taken.notes:
        lines += screen.wrap(f"{note[0].upper()}{note[1:]}.")
    lines.append(f"Check it:   {screen.program} snapshot verify {shell_word(taken.path)}")
    return "\n".join(lines) + "\n"


def not_a_pair(manifest: Manifest, screen: Screen) -> list[str]:
    """That its halves were not taken together, and how far they are apart."""
    return screen.wrap(
        f"NOT A PAIR: a backup that was imported. Its halves were not taken together: {manifest.unsettled_why}."
    )


def holds(manifest: Manifest) -> str:
    """What a snapshot holds, in numbers: `27 memories, 10 entities, 47 changes`."""
    counts = manifest.counts
    parts = []
    for what, word in (("memories", memories), ("entities", _entities), ("changes", _changes)):
        count = counts.get(what)
        if count is None:
            parts.append(f"{what} not counted")
        elif count or what != "entities":
            parts.append(word(count))
    return ", ".join(parts)


def _entities(count: int) -> str:
    return plural(count, "entity", "entities")


def _changes(count: int) -> str:
    return plural(count, "change")


def _waited(manifest: Manifest) -> str:
    if manifest.server is not None:
        return f"From Qdrant {escape(manifest.server.version)} at {escape(manifest.server.url)}."
    if all(file.journal_mode != "rollback" for file in manifest.files):
        return "In write-ahead logging mode no agent waits for it."
    return f"An agent writing meanwhile waited {seconds(manifest.longest_hold_s)} at most."


def _settled(manifest: Manifest, screen: Screen) -> list[str]:
    if not manifest.pair:
        return not_a_pair(manifest, screen)
    if manifest.settled and manifest.server is not None:
        if any(file.way == "backup" and file.journal_mode == "rollback" for file in manifest.files):
            held = (
                f"an agent that wrote meanwhile was kept waiting, {seconds(manifest.longest_hold_s)} at most."
            )
            return screen.wrap(f"Settled: both stores are of one instant; {held}")
        return screen.wrap("Settled: neither store changed while the server took its snapshots.")
    if manifest.settled:
        return ["Settled: no write of mem0's was in flight between the two stores."]
    return screen.wrap(
        f"NOT SETTLED: {manifest.unsettled_why}. The agent never held still, so single differences between the "
        "two stores may be this copy's own. Take another at a quieter minute."
    )


def _faults(findings: Mapping[str, int], screen: Screen) -> list[str]:
    faults = [
        f"{code} {CATALOGUE[code].name} {count:,}" if code in CATALOGUE else f"{code} {count:,}"
        for code, count in findings.items()
        if code not in CATALOGUE or CATALOGUE[code].severity > Severity.INFO
    ]
    if not faults:
        return []
    return screen.wrap(f"Copied as they are, with the install's own faults: {', '.join(faults)}.")


def _verified(checked: Checked | None, now: float) -> str:
    """When `verify` last found it good or bad, and how deep it looked."""
    if checked is None:
        return "not verified"
    ago = f"{age(max(now - (instant(checked.at) or 0.0), 0.0))} ago"
    how = "" if checked.depth == "default" else f", {checked.depth}"
    return f"verified {ago}{how}" if checked.good else f"NOT GOOD {ago}{how}"


def _kept(kept: Kept | None) -> list[str]:
    return [] if kept is None else [f"kept: {kept.reason}"]


def list_text(
    folder: str, listed: Sequence[Listed], now: float, screen: Screen, *, known: bool = True
) -> str:
    """The newest first: age, size, counts, whether it is settled, when it was last verified; on lines of their own
    why it is no pair, why it is kept, and what the width has no room for. `now` is in seconds since 1970; `known` is
    false where the marks do not read."""
    if not listed:
        lines = [f"No snapshot in {escape(folder)}."]
        lines.append(f"To take one:   {screen.program} snapshot create --to {shell_word(folder)}")
        return "\n".join(lines) + "\n"
    rows: list[list[str]] = []
    more: list[list[str]] = []
    for one in listed:
        if one.manifest is None:
            rows.append([one.name])
            more.append([f"NOT READABLE: {one.problem or ''}", *_kept(one.kept)])
            continue
        manifest = one.manifest
        state = "settled" if manifest.settled else "not settled" if manifest.pair else "not a pair"
        how_old = f"{age(max(now - manifest.taken_at, 0.0))} old"
        rows.append(
            [
                *(one.name, how_old, size(manifest.size_bytes), holds(manifest), state),
                _verified(one.checked, now) if known else "not known whether verified",
            ]
        )
        why = [] if manifest.pair else [manifest.unsettled_why or ""]
        why += [] if manifest.until is None else [f"short-lived: goes at {manifest.until}"]
        more.append([*why, *_kept(one.kept)])
    for columns in (6, 4, 3):
        lines = table([row[:columns] for row in rows], right=(2,))
        if all(len(line) <= screen.width for line in lines):
            break
    told = []
    for line, row, notes in zip(lines, rows, more, strict=True):
        told += [line, *screen.columns(row[columns:], indent=4)]
        told += [part for note in notes for part in screen.wrap(note, indent=4, hanging=6)]
    return "\n".join(told) + "\n"


def show_text(one: Listed, now: float, screen: Screen, *, known: bool = True) -> str:
    """Everything a manifest says."""
    manifest = one.manifest
    assert manifest is not None
    lines = [screen.bold(escape(one.path))]
    how_old = age(max(now - manifest.taken_at, 0.0))
    rows = [
        ["taken", f"{manifest.created_at}, {how_old} ago, on {escape(manifest.hostname)}"],
        ["holds", f"{holds(manifest)}; {size(manifest.size_bytes)}"],
        ["history", f"{escape(manifest.history.value)}  from {escape(manifest.history.decided_by)}"],
        ["vectors", f"{escape(manifest.vectors.value)}  from {escape(manifest.vectors.decided_by)}"],
        ["collection", escape(manifest.collection.value)],
        *([] if manifest.server is None else _collections(manifest.server)),
        [
            "written by",
            ", ".join(f"{escape(k)} {escape(v or 'not known')}" for k, v in manifest.versions.items()),
        ],
        ["points", manifest.points_digest or "they changed meanwhile: not known from outside"],
        ["rows", manifest.history_digest or "the log could not be read"],
        [
            "tries",
            "imported"
            if not manifest.pair
            else f"{manifest.tries}, the longest of {seconds(manifest.longest_hold_s)}",
        ],
    ]
    if manifest.until is not None:
        rows.append(["short-lived", f"goes at {manifest.until}"])
    if one.kept is not None:
        rows.append(["kept", f"{escape(one.kept.reason)}  since {one.kept.at}"])
    lines += table(rows)
    lines += screen.wrap(_verdict(one.checked) if known else "not known", first="verified    ", hanging=12)
    lines += ["", *_settled(manifest, screen), *_faults(manifest.findings, screen), ""]
    lines += table(
        [
            [escape(f.path), size(f.size_bytes), f.journal_mode or "", escape(f.way), f.sha256]
            for f in manifest.files
        ],
        right=(1,),
    )
    lines += ["", f"Check it:   {screen.program} snapshot verify {shell_word(one.path)}"]
    return "\n".join(lines) + "\n"


def _collections(server: ServerCopy) -> list[list[str]]:
    rows = []
    for one in server.collections:
        count = "points not counted" if one.points is None else plural(one.points, "point")
        indexes = ", ".join(sorted(map(escape, one.payload_schema))) or "none"
        rows.append([one.role, f"{escape(one.name)}: {count}, payload indexes: {indexes}"])
    return rows


def _verdict(checked: Checked | None) -> str:
    if checked is None:
        return "not yet"
    if checked.good:
        return f"good at {checked.at}: {_DEPTHS[checked.depth]}"
    return f"NOT GOOD at {checked.at}: {checked.problem or ''}"


def _checked(verdicts: Sequence[Verdict], screen: Screen) -> list[str]:
    of_servers = [one for one in verdicts if one.manifest is not None and one.manifest.server is not None]
    depth = verdicts[0].depth
    lines = [] if len(of_servers) == len(verdicts) else screen.wrap(f"Checked: {_DEPTHS[depth]}.")
    if of_servers:
        before = "Of those taken of a Qdrant server: " if lines else "Checked: "
        lines += screen.wrap(f"{before}{_SERVER_DEPTHS[depth]}.")
    return lines


_SERVER_DEPTHS = {
    "quick": "names, sizes and the manifest's checksum, no more",
    "default": "every byte by its checksum, and the log. The points lie in the server's own format: --deep reads "
    "them, on a server that --qdrant-url names",
    "deep": "every byte, the log, and the points, in scratch collections on the server, which are removed again",
}

_DEPTHS = {
    "quick": "names, sizes and the manifest's checksum, no more",
    "default": "every byte, integrity_check, both stores as a pair",
    "deep": "every byte, integrity_check, both stores as a pair, and again where they were put back",
}


def verify_text(verdicts: Sequence[Verdict], screen: Screen) -> str:
    """Each snapshot: good, or what is wrong with which file."""
    lines: list[str] = []
    for one in verdicts:
        if one.good and one.manifest is not None:
            lines.append(f"{escape(one.name)}  good  {holds(one.manifest)}")
            if not one.manifest.pair:
                lines += screen.wrap(f"not a pair: {one.manifest.unsettled_why}", indent=2, hanging=4)
            elif not one.manifest.settled:
                lines += screen.wrap(f"not settled: {one.manifest.unsettled_why}", indent=2, hanging=4)
            continue
        lines.append(
            f"{escape(one.path)}  " + screen.alarm("NOT GOOD" if one.problems else "not checked whole")
        )
        for problem in one.problems:
            lines += screen.wrap(f"{problem.path}: {problem.detail}", indent=2, hanging=4)
        for gap in one.not_checked:
            lines += screen.wrap(f"not checked: {gap.what}: {gap.why}", indent=2, hanging=4)
    if not verdicts:
        lines.append("Each has a verdict already: without --new they are looked at again.")
    elif all(one.good for one in verdicts):
        lines += _checked(verdicts, screen)
    return "\n".join(lines) + "\n"
