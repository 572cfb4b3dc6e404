"""Reports as an audit would give them, built by hand, for the screens."""

from __future__ import annotations

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.model import (
    Agent,
    Candidate,
    Certainty,
    Cleaning,
    Finding,
    Holder,
    Incident,
    Install,
    NotChecked,
    Origin,
    Place,
    Report,
)

HISTORY = "/home/ann/.mem0/history.db"
RULES = """
C601 C602 C603 C604 D301 D302 D303 D304 D305 D306 D307 D308 D309 E501 E502 E503 E504 H401 H402
H403 H404 H405 H406 H407 I201 I202 I203 I204 I205 I206 I207 I208 I209 I210 I211 I212 I213 I214
I215 L101 L102 L103 L104 L105 L106 L107 L108 L109 L110 L111 L112 L113 T701
"""
CHECKED = tuple(RULES.split())
ID = "3f2a9c1e-0b7d-4f0a-9d1e-{:012x}"


def install(vectors: str = "/srv/agent/qdrant") -> Install:
    return Install(
        history=Origin(HISTORY, "mem0's default"),
        vectors=Origin(vectors, "mem0's default" if vectors == "/tmp/qdrant" else "--qdrant-path"),
        collection=Origin("mem0", "mem0's default"),
        mem0_dir=Origin("/home/ann/.mem0", "mem0's default"),
    )


def place(path: str, **changes: object) -> Place:
    values: dict[str, object] = {
        "path": path,
        "exists": True,
        "filesystem": "ext4",
        "mount_point": "/",
        "volatile": False,
        "network": False,
        "container_layer": False,
        "size_bytes": 4_100_000,
    }
    return Place(**{**values, **changes})  # type: ignore[arg-type]


AGENT = Agent("/srv/agent/venv/bin/python", "2.0.18", "1.19.1", "pid 812")
HOLDER = Holder(
    pid=812,
    command="python agent.py",
    how="lock",
    paths=("/srv/agent/qdrant/.lock",),
    user="ann",
    unit="agent.service",
    interpreter="/srv/agent/venv/bin/python",
)
COUNTS = {"memories": 9871, "entities": 2114, "changes": 12406, "live": 9871, "messages": 10, "other": 0}
NOT_ASKED = (
    NotChecked("D310", "no seal yet", gap=False),
    NotChecked("D311", "no seal yet", gap=False),
    NotChecked("H408", "no seal yet", gap=False),
)


def finding(code: str, **values: object) -> Finding:
    values.setdefault("help", f"mem0audit explain {code}")
    return Finding(code=code, severity=CATALOGUE[code].severity, **values)  # type: ignore[arg-type]


def report(**changes: object) -> Report:
    values: dict[str, object] = {
        "install": install(),
        "places": (place(HISTORY), place("/srv/agent/qdrant", size_bytes=1_600_000_000)),
        "holders": (HOLDER,),
        "agent": AGENT,
        "checked": CHECKED,
        "not_checked": NOT_ASKED,
        "incidents": (),
        "findings": (),
        "counts": COUNTS,
        "seconds": 1.93,
    }
    return Report(**{**values, **changes})  # type: ignore[arg-type]


def clean() -> Report:
    notes = (
        finding("I215", path=HISTORY, evidence={"journal mode": "rollback"}),
        finding("S804", evidence={"history rows": 214, "messages": 10}),
    )
    return report(findings=notes)


def on_a_tmpfs() -> Report:
    lost = tuple(
        finding(
            "D302",
            memory_id=f"{i:08x}-0b7d-4f0a-9d1e-5c6b7a8977d0",
            evidence={"last event": "ADD", "row": 7000 + i},
        )
        for i in range(1203)
    )
    back = tuple(
        finding(
            "D301",
            memory_id=ID.format(i),
            evidence={
                "owner": "user alice",
                "deleted": "2026-10-14T01:12:09.120000-08:00",
                "row": 8812 + i,
                "in the store since": "2026-10-20T10:00:00+00:00",
            },
        )
        for i in range(5)
    )
    tmp = place(
        "/tmp/qdrant", filesystem="tmpfs", mount_point="/tmp", volatile=True, size_bytes=1_600_000_000
    )
    return report(
        install=install("/tmp/qdrant"),
        places=(place(HISTORY), tmp),
        holders=(
            Holder(
                pid=812,
                command="python agent.py",
                how="lock",
                paths=("/tmp/qdrant/.lock",),
                user="ann",
                unit="agent.service",
                interpreter="/srv/agent/venv/bin/python",
            ),
        ),
        incidents=(
            Incident(
                kind="emptied-at-reboot",
                name="the store was emptied by the reboot of 2026-11-02 06:14:00Z",
                certainty=Certainty.CERTAIN,
                evidence=(
                    "1,203 memories logged before it are missing, and none of what was logged after it.",
                    "The folder was made at 2026-11-02 06:15:10Z.",
                ),
                advice=(
                    "Keep history.db: it holds the last text of each of them. Take a copy of it now.",
                    "cp /home/ann/.mem0/history.db /home/ann/history-copy.db",
                ),
                codes=("D302", "L106"),
                memory_ids=frozenset(f.memory_id or "" for f in lost),
            ),
        ),
        findings=(
            finding(
                "L101",
                path="/tmp/qdrant",
                subject="vectors",
                evidence={"filesystem": "tmpfs", "mounted at": "/tmp", "size": 1_600_000_000},
            ),
            *lost,
            *back,
            finding("L113", path="/tmp/qdrant", evidence={"history": "ext4", "vectors": "tmpfs"}),
        ),
        not_checked=(
            NotChecked("L104", "other people's processes are not visible", gap=False),
            *NOT_ASKED,
        ),
    )


def emptied() -> Report:
    lost = tuple(
        finding(
            "D302",
            memory_id=f"{i:08x}-0b7d-4f0a-9d1e-5c6b7a8977d0",
            evidence={"last event": "ADD", "row": 100 + i},
        )
        for i in range(18)
    )
    return report(
        holders=(),
        agent=Agent(None, None, None, "no process has the store open"),
        counts={**COUNTS, "memories": 0, "entities": 0, "changes": 49, "live": 18},
        findings=lost,
        incidents=(
            Incident(
                kind="bulk-delete-dropped-collection",
                name="a delete_all of one user dropped everybody's memories",
                certainty=Certainty.LIKELY,
                evidence=("8 DELETE rows in a row (rows 42 to 49), at 2026-11-20 11:02:31Z, then nothing.",),
                advice=(
                    "Before anything else: upgrade mem0 to 1.0.6 or later, or call delete_all no more.",
                    "Keep history.db: it holds the last text of each of them.",
                ),
                codes=("D302",),
                memory_ids=frozenset(f.memory_id or "" for f in lost),
            ),
        ),
        not_checked=(NotChecked("L110", "the agent's mem0 version is not known", gap=False), *NOT_ASKED),
        checked=tuple(c for c in CHECKED if c != "L110"),
        seconds=0.21,
    )


def resurrected() -> Report:
    back = tuple(
        finding(
            "D301",
            memory_id=ID.format(i),
            evidence={
                "owner": "user alice",
                "deleted": "2026-10-14T09:12:09+00:00",
                "row": 8812 + i,
                "in the store since": "2026-10-20T10:00:00+00:00",
            },
        )
        for i in range(24)
    )
    return report(
        findings=(*back, finding("B901"), finding("I215", path=HISTORY)),
        incidents=(
            Incident(
                kind="async-delete-all",
                name="a delete_all through AsyncMemory left memories on disk",
                certainty=Certainty.LIKELY,
                evidence=("24 memories have a DELETE row, and are in the store with their old text.",),
                advice=("Delete them again, one by one, by their ids; then audit again.",),
                codes=("D301",),
                memory_ids=frozenset(f.memory_id or "" for f in back[:20]),
            ),
        ),
    )


def could_not_read() -> Report:
    return report(
        places=(
            place(HISTORY, size_bytes=None, problem="permission denied", exists=True),
            place("/srv/agent/qdrant", size_bytes=1_600_000_000),
        ),
        counts={**COUNTS, "changes": None, "live": None, "messages": None},
        checked=tuple(c for c in CHECKED if c[0] in "LIC"),
        not_checked=(
            NotChecked(HISTORY, "permission denied (sudo mem0audit audit can read it)"),
            *(NotChecked(c, "the log could not be read") for c in CHECKED if c[0] in "DH"),
            *NOT_ASKED,
        ),
    )


def nothing_found() -> Report:
    gone = {"exists": False, "size_bytes": None}
    return report(
        install=install("/tmp/qdrant"),
        places=(place(HISTORY, **gone), place("/tmp/qdrant", **gone)),
        holders=(),
        agent=Agent(None, None, None, "none found"),
        counts=dict.fromkeys(COUNTS),
        checked=(),
        candidates=(
            Candidate(
                "vectors",
                "/opt/bot/data/qdrant",
                "held by pid 4711",
                "mem0audit audit --history /opt/bot/data/history.db --qdrant-path /opt/bot/data/qdrant",
                memories=412,
            ),
            Candidate(
                "history",
                "/root/.mem0/history.db",
                "home of root",
                "sudo mem0audit audit --history /root/.mem0/history.db",
            ),
        ),
        not_checked=(
            NotChecked("/home/bob", "permission denied; sudo mem0audit status looks there", gap=False),
        ),
    )


def private_tmp() -> Report:
    holder = Holder(
        pid=4711,
        command="python bot.py",
        how="lock",
        paths=("/tmp/qdrant/.lock",),
        unit="bot.service",
        private_mounts=True,
        private_tmp=True,
        interpreter="/opt/bot/bin/python",
    )
    return report(
        install=install("/tmp/qdrant"),
        places=(place(HISTORY), place("/tmp/qdrant")),
        holders=(holder,),
        findings=(
            finding(
                "L104",
                path="/tmp/qdrant/.lock",
                subject="pid 4711",
                evidence={"pid": 4711, "command": "python bot.py", "unit": "bot.service", "container": None},
            ),
        ),
    )


def cleaned_at_boot() -> Report:
    rule = Cleaning("/usr/lib/tmpfiles.d/tmp.conf", "D /tmp 1777 root root 30d", "at boot")
    spot = place("/tmp/qdrant", cleaned=rule)
    return report(
        install=install("/tmp/qdrant"),
        places=(place(HISTORY), spot),
        findings=(
            finding(
                "L102",
                path="/tmp/qdrant",
                subject="vectors",
                evidence={"cleaned": "at boot", "rule": rule.line, "in": rule.source},
            ),
            finding("L105", path="/tmp/qdrant"),
        ),
    )


SCREENS = {
    "on-a-tmpfs": on_a_tmpfs,
    "emptied": emptied,
    "resurrected": resurrected,
    "clean": clean,
    "could-not-read": could_not_read,
    "nothing-found": nothing_found,
    "private-tmp": private_tmp,
    "cleaned-at-boot": cleaned_at_boot,
}
