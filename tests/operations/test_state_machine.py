"""Random mem0 operations and crashes between its two writes, beside a plain model: the audit must report
exactly the planted difference, while the agent is open and after it stopped."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.builders import MemoryBuilder
from tests.rules.support import of, report_of

USERS = st.sampled_from(["alice", "bob", "carol"])
SELECT = ("D", "H", "C602")


class Mem0BesideAModel(RuleBasedStateMachine):
    """`stored` and `logged` are what each store must hold: memory id to text."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mem0audit-model-"))
        self.agent = MemoryBuilder(self.folder)
        self.stored: dict[str, tuple[str, str]] = {}
        self.logged: dict[str, str] = {}
        self.known: set[str] = set()
        self.without_add: set[str] = set()
        self.broken = 0
        self.count = 0
        self.changed = True

    def text(self) -> str:
        self.count += 1
        self.changed = True
        return f"fact number {self.count}"

    def row(self, memory_id: str, old: str | None, new: str | None) -> None:
        """What a row that mem0 writes does to the log."""
        if memory_id not in self.known:
            self.known.add(memory_id)
            if old is not None:
                self.without_add.add(memory_id)
        elif old is not None and self.logged.get(memory_id) != old:
            self.broken += 1
        if new is None:
            self.logged.pop(memory_id, None)
        else:
            self.logged[memory_id] = new

    def one_of(self, data: st.DataObject) -> str:
        return str(data.draw(st.sampled_from(sorted(self.stored))))

    @initialize()
    def start(self) -> None:
        self.add("alice")

    @rule(user=USERS)
    def add(self, user: str) -> None:
        text = self.text()
        memory_id = self.agent.add(text, user_id=user)
        self.stored[memory_id] = (user, text)
        self.row(memory_id, None, text)

    @rule(user=USERS)
    def add_facts(self, user: str) -> None:
        texts = [self.text() for _ in range(3)]
        for memory_id, text in zip(self.agent.add_inferred(texts, user_id=user), texts, strict=True):
            self.stored[memory_id] = (user, text)
            self.row(memory_id, None, text)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        memory_id, text = self.one_of(data), self.text()
        user, old = self.stored[memory_id]
        self.agent.update(memory_id, text)
        self.stored[memory_id] = (user, text)
        self.row(memory_id, old, text)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        memory_id = self.one_of(data)
        self.changed = True
        self.agent.delete(memory_id)
        _, old = self.stored.pop(memory_id)
        self.row(memory_id, old, None)

    @rule(user=USERS)
    def delete_all(self, user: str) -> None:
        self.changed = True
        self.agent.delete_all(user_id=user)
        for memory_id in [i for i, (owner, _) in self.stored.items() if owner == user]:
            _, old = self.stored.pop(memory_id)
            self.row(memory_id, old, None)

    @rule()
    def restart(self) -> None:
        self.changed = True
        self.agent.reopen()

    @rule(user=USERS)
    def crash_in_add(self, user: str) -> None:
        text = self.text()
        before = set(self.agent.points())
        with self.agent.crash_between_writes():
            self.agent.add(text, user_id=user)
        (memory_id,) = set(self.agent.points()) - before
        self.stored[memory_id] = (user, text)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def crash_in_update(self, data: st.DataObject) -> None:
        memory_id, text = self.one_of(data), self.text()
        with self.agent.crash_between_writes():
            self.agent.update(memory_id, text)
        self.stored[memory_id] = (self.stored[memory_id][0], text)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def crash_in_delete(self, data: st.DataObject) -> None:
        memory_id = self.one_of(data)
        self.changed = True
        with self.agent.crash_between_writes():
            self.agent.delete(memory_id)
        del self.stored[memory_id]

    @invariant()
    def the_audit_reports_the_difference_and_nothing_else(self) -> None:
        if not self.changed:
            return
        self.changed = False
        self.compare()

    def compare(self) -> None:
        report = report_of(self.agent, select=SELECT)
        told = {code: {f.memory_id for f in of(report, code)} for code in ("D302", "D303", "D304")}
        assert told["D302"] == set(self.logged) - set(self.stored)
        assert told["D303"] == set(self.stored) - self.known
        assert told["D304"] == {
            i for i, (_, text) in self.stored.items() if i in self.logged and self.logged[i] != text
        }
        assert len(of(report, "H401")) == self.broken
        assert {f.memory_id for f in of(report, "H402")} == self.without_add
        others = {f.code for f in report.findings} - {"D302", "D303", "D304", "H401", "H402", "H407"}
        assert not others
        assert not [n for n in report.not_checked if n.gap]
        assert report.counts["memories"] == len(self.stored)
        assert report.counts["live"] == len(self.logged)

    def teardown(self) -> None:
        self.agent.close()
        try:
            self.compare()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


TestMem0BesideAModel = Mem0BesideAModel.TestCase
TestMem0BesideAModel.settings = settings(
    max_examples=6,
    stateful_step_count=20,
    deadline=None,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
    # no shrinking: each step is real mem0, and the blob printed at a failure repeats it
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    print_blob=True,
)
