"""Do what is safe about findings: deletions, links of entities and hashes, through mem0, after a snapshot.

Every change is looked at afterwards, still under mem0's lock: the finding is gone, and no other row of either store is
another one (`operations/changes.py`). Cut off at any moment, the same command finds what is left and goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from mem0audit.core.changes import Step, Steps
from mem0audit.core.errors import Refused
from mem0audit.core.incident import incidents
from mem0audit.core.model import (
    Finding,
    Install,
    PointId,
    Severity,
    VectorFacts,
)
from mem0audit.core.reading import Reading
from mem0audit.core.repair import (
    EXPLAINED,
    OF_ITS_OWN,
    REPAIRED,
    Repaired,
    RepairPlan,
    Wanted,
    repair_steps,
)
from mem0audit.core.rules import RULES
from mem0audit.core.rules.content import same_text_and_owner
from mem0audit.core.rules.divergence import standing_key
from mem0audit.core.snapshot import canonical
from mem0audit.install.host import Host
from mem0audit.operations.audit import SECOND_LOOK_S, judge
from mem0audit.operations.changes import (
    apply_steps,
    erased_and_back,
    look_whole,
    no_snapshot,
    undecodable,
    way_in,
)
from mem0audit.operations.look import Progress, no_collector, no_progress
from mem0audit.operations.mem0door import Door
from mem0audit.stores.embedded import EmbeddedStore

_JUDGED = tuple(code for code in RULES if code[0] in "DHECT")


# --- Plan ------------------------------------------------------------------------------------------


def plan_repair(
    install: Install,
    host: Host,
    wanted: Wanted,
    *,
    folder: str | None,
    progress: Progress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> RepairPlan:
    """What a repair would do about what is `wanted`, or about everything where that is empty.

    Reads everything, changes nothing; the agent may be running. `folder` is where the snapshot goes that is taken
    first. Why nothing can be applied now is in the plan (`blocked`). Raises Refused for a vector store that is no
    folder, CouldNotRead where one of the two stores could not be read whole: findings are judged of both.
    """
    say = progress or no_progress
    if install.vectors is None:
        what = "a Qdrant server" if install.provider == "qdrant" else install.provider
        raise Refused(f"the vector store is {what}: this version repairs embedded Qdrant folders only")
    way = way_in(install, host)
    door, blocked = way.door, way.blocked
    reading, findings = _findings(install, host, say, pause)
    todo = _todo(reading, findings, wanted, host, way.mem0, folder)
    if todo.steps:
        blocked = blocked or undecodable(reading) or no_snapshot(install, host, folder)
    seen = (
        {f.memory_id for f in findings}
        | {step.keeps for step in todo.steps}
        | {str(s.id) for s in todo.steps}
    )
    others = Counter(
        f.code
        for f in findings
        if f.code not in (*REPAIRED, *EXPLAINED)
        and f.severity > Severity.INFO
        and (not wanted or f.memory_id in wanted.ids)
    )
    return RepairPlan(
        install=reading.install,
        wanted=wanted,
        todo=todo,
        found=Counter(f.code for f in findings),
        mem0=way.mem0,
        interpreter=door.interpreter if door is not None else None,
        how_found=door.source if door is not None else "",
        own=door is not None and door.own,
        folder=folder,
        blocked=blocked,
        unseen=way.unseen,
        unknown=tuple(sorted(wanted.ids - {i for i in seen if i is not None})),
        others=others,
        events=_events(reading, todo),
    )


def _events(reading: Reading, todo: Steps) -> tuple[str, ...]:
    """What stands behind what would be repaired: vectors that somebody put back are no accident, perhaps."""
    codes = {step.code for step in todo.steps}
    return tuple(
        f"{one.name} ({one.certainty.label})" for one in incidents(reading) if codes.intersection(one.codes)
    )


def _findings(
    install: Install, host: Host, say: Progress, pause: Callable[[float], None] | None = None
) -> tuple[Reading, list[Finding]]:
    """Both stores as read, and what is wrong with them. With `pause`, where somebody may write meanwhile, only what
    stands at a second look."""
    with no_collector():
        reading = look_whole(install, host, say)
        findings, _ = judge(reading, _JUDGED)
        if pause is not None and reading.live and findings:
            say("looking again at what disagrees", None, None)
            pause(SECOND_LOOK_S)
            first = {standing_key(f) for f in findings}
            reading = look_whole(install, host, say)
            findings = [f for f in judge(reading, _JUDGED)[0] if standing_key(f) in first]
    return reading, findings


def _todo(
    reading: Reading,
    findings: Sequence[Finding],
    wanted: Wanted,
    host: Host,
    mem0: str | None,
    folder: str | None,
) -> Steps:
    erased = erased_and_back(reading, host, folder)
    return repair_steps(
        reading, findings, wanted, mem0=mem0, payloads=_payloads_of_copies(reading), erased=erased
    )


def _payloads_of_copies(reading: Reading) -> dict[str, bytes]:
    """A digest of the payload of each memory that has copies, without what each has of its own."""
    home = reading.configured
    ids = {one[0] for group in same_text_and_owner(home) for one in group} if home is not None else set()
    if home is None or not ids:
        return {}

    def keep(_row: int, point_id: PointId, payload: Mapping[str, Any], _vector: VectorFacts) -> bytes | None:
        if str(point_id) not in ids:
            return None
        rest = sorted((key, repr(value)) for key, value in payload.items() if key not in OF_ITS_OWN)
        return blake2b(canonical(rest).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    assert reading.vectors_path is not None
    read = EmbeddedStore(reading.vectors_path).points(home.info, keep)
    return {str(i): digest for i, digest in read.rows.items() if digest is not None}


# --- Apply -----------------------------------------------------------------------------------------


def apply_repair(
    plan: RepairPlan, host: Host, *, progress: Progress | None = None, now: Callable[[], float] = time.time
) -> Repaired:
    """Does what was planned: a snapshot first, then everything through mem0, then the proof.

    Nothing is done where the plan has no steps. Raises Refused where it is blocked, where somebody has the install
    open, or where the stores are not as they were when it was planned; Failed where a step failed (what was done
    before it stands), or where something else than the steps changed meanwhile.
    """
    say = progress or no_progress
    if not plan.todo.steps:
        return Repaired(plan)
    if plan.blocked is not None:
        raise Refused(*plan.blocked)
    install, folder = plan.install, plan.folder
    assert folder is not None

    def again(door: Door) -> Steps:
        reading, findings = _findings(install, host, say)
        return _todo(reading, findings, plan.wanted, host, door.mem0, folder)

    changed = apply_steps(
        install,
        host,
        plan.todo,
        folder,
        "repair",
        again=again,
        remaining=lambda: _remaining(install, host, plan.todo, say),
        progress=say,
        now=now,
    )
    return Repaired(plan, changed)


def _remaining(install: Install, host: Host, todo: Steps, say: Progress) -> tuple[Step, ...]:
    """The steps of which the finding is still there."""
    reading, findings = _findings(install, host, say)
    found = {(f.code, f.memory_id) for f in findings}
    home = reading.configured
    there = {str(i) for i in home.read.rows} if home is not None else set()

    def is_left(step: Step) -> bool:
        if step.kind == "delete":
            return str(step.id) in there
        codes = ("E501", "E502") if step.kind == "unlink" else (step.code,)
        return any((code, str(step.id)) in found for code in codes)

    return tuple(step for step in todo.steps if is_left(step))
