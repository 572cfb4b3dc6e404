"""Changes through mem0's own API, in a worker under another interpreter."""

from __future__ import annotations

import ast
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mem0audit.core.errors import Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.stores import mem0_worker, mem0api
from mem0audit.stores.mem0api import Mem0Worker
from tests.builders import MemoryBuilder, RawHistory, RawPoints, copy_store, difference
from tests.speed import Allowance

NOTHING: dict[str, set[str]] = {"lost": set(), "unlogged": set(), "resurrected": set(), "text": set()}
ALICE = {"user_id": "alice"}


def worker_at(folder: Path, **changes: object) -> Mem0Worker:
    arguments: dict[str, object] = {
        "interpreter": sys.executable,
        "history": folder / "mem0_dir" / "history.db",
        "vectors": folder / "qdrant",
        "collection": "mem0",
        "mem0_dir": folder / "mem0_dir",
        "dims": 8,
        "embedder": "offline",
        **changes,
    }
    return Mem0Worker(**arguments)  # type: ignore[arg-type]


def files_under(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_every_operation_is_mem0s(tmp_path: Path, own_home: Path) -> None:
    with worker_at(tmp_path) as worker:
        assert (worker.versions.mem0, worker.versions.client) == ("2.2.1", "1.20.0")
        assert worker.versions.python == ".".join(map(str, sys.version_info[:3]))
        one = worker.add("Alice lives in Lisbon", ALICE, {"n": 1})
        two = worker.add("Alice plays the cello", {"user_id": "alice", "agent_id": "a7"})
        three = worker.add("Bob drives a Volvo", {"user_id": "bob"}, expiration_date="2020-01-01")
        worker.update(one, "Alice lives in Porto", {"m": 2})
        worker.expire(one, "2031-05-06")
        worker.delete(two)
    points = {i: p.payload for i, p in RawPoints(tmp_path / "qdrant").points().items()}
    assert set(points) == {one, three}
    assert (
        points[one].items()
        >= {
            "data": "Alice lives in Porto",
            "user_id": "alice",
            "n": 1,
            "m": 2,
            "expiration_date": "2031-05-06",
        }.items()
    )
    assert points[three]["expiration_date"] == "2020-01-01"
    history = tmp_path / "mem0_dir" / "history.db"
    assert [(r["memory_id"], r["event"]) for r in RawHistory(history).rows()] == [
        (one, "ADD"),
        (two, "ADD"),
        (three, "ADD"),
        (one, "UPDATE"),
        (one, "UPDATE"),
        (two, "DELETE"),
    ]
    assert difference(history, tmp_path / "qdrant") == NOTHING
    # everything it wrote is in the places that were named
    assert files_under(tmp_path) == {
        "mem0_dir/config.json",
        "mem0_dir/history.db",
        "qdrant/.lock",
        "qdrant/meta.json",
        "qdrant/collection/mem0/storage.sqlite",
    }
    assert files_under(own_home) == set()

    with worker_at(tmp_path) as worker:
        worker.delete_all(ALICE)
        assert set(RawPoints(tmp_path / "qdrant").points()) == {three}
        worker.reset()
    assert RawPoints(tmp_path / "qdrant").points() == {}
    assert RawHistory(history).rows() == []


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mem0Worker, Path]]:
    """One worker that goes on through several tests, and its folder: a start is 2 s of mem0's imports."""
    folder = tmp_path_factory.mktemp("shared")
    with worker_at(folder) as worker:
        yield worker, folder


def test_texts_go_through_unharmed(shared: tuple[Mem0Worker, Path]) -> None:
    texts = ["line\nbreak", 'quote " and \\', "nul \x00 end", "smile \U0001f600", "", "x" * 300_000]
    worker, folder = shared
    ids = [worker.add(text, ALICE) for text in texts]
    points = RawPoints(folder / "qdrant").points()
    assert [points[i].payload["data"] for i in ids] == texts


@pytest.mark.parametrize("operation", ["add", "update", "delete"])
def test_dying_between_the_two_writes(operation: str, tmp_path: Path) -> None:
    with worker_at(tmp_path) as worker:
        one = worker.add("one", ALICE)
        arguments = {
            "add": {"text": "two", "owner": ALICE},
            "update": {"id": one, "text": "changed"},
            "delete": {"id": one},
        }[operation]
        worker.crash_after_vector(operation, **arguments)
        with pytest.raises(Failed):
            worker.add("three", ALICE)
    found = difference(tmp_path / "mem0_dir/history.db", tmp_path / "qdrant")
    kind = {"add": "unlogged", "update": "text", "delete": "lost"}[operation]
    assert {name for name, ids in found.items() if ids} == {kind}
    assert len(found[kind]) == 1


@pytest.mark.thorough
def test_an_operation_that_cannot_be_cut_says_so(tmp_path: Path) -> None:
    with worker_at(tmp_path) as worker, pytest.raises(Refused, match="so nothing was cut"):
        worker.crash_after_vector("delete", id="00000000-0000-0000-0000-000000000000")


def test_a_store_in_use_is_refused(tmp_path: Path, build: Callable[..., MemoryBuilder]) -> None:
    agent = build()
    agent.add("SECRET one", user_id="alice")
    with pytest.raises(Refused) as caught, worker_at(agent.folder):
        pass
    assert "in use by another process" in caught.value.message
    assert str(agent.vectors) in caught.value.message


def test_errors_are_one_line_without_text(shared: tuple[Mem0Worker, Path]) -> None:
    problems: list[Mem0auditError] = []
    worker, _ = shared
    one = worker.add("SECRET one", ALICE)
    for call in (
        lambda: worker.update("00000000-0000-0000-0000-000000000000", "SECRET two"),
        lambda: worker.add("SECRET three", {}),
        lambda: worker.add("SECRET four", {"user_id": "SECRET  five"}),
        lambda: worker.add("SECRET six", ALICE, expiration_date="SECRET date"),
        lambda: worker.delete_all({}),
        lambda: worker.delete_all({"user_id": "*"}),
        lambda: worker.expire(one, "SECRET"),
    ):
        with pytest.raises(Mem0auditError) as caught:
            call()
        problems.append(caught.value)
    assert not worker.delete("00000000-0000-0000-0000-000000000000")
    worker.add("still running", ALICE)
    for problem in problems:
        assert "SECRET" not in f"{problem.message}{problem.hint}"
        assert "\n" not in problem.message
    assert problems[0].message == "mem0 2.2.1 failed at update: no such memory (ValueError)"


def test_several_at_once_and_left_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers nobody waited for are not taken for those of the next question; what failed ends the rest."""
    monkeypatch.setattr(mem0api, "AT_ONCE", 3)
    nowhere = "00000000-0000-0000-0000-000000000000"
    with worker_at(tmp_path) as worker:
        ids = [worker.add(f"fact {n}", ALICE) for n in range(5)]
        assert list(worker.delete_each([ids[0], nowhere, ids[1], ids[2]])) == [True, False, True, True]
        assert next(worker.delete_each([ids[3], nowhere, nowhere]))
        found = worker.get(ids[4])
        assert found is not None and found["memory"] == "fact 4"
        with pytest.raises(Refused, match="unknown operation"):
            list(worker._ask_each([{"op": "dance"}, {"op": "delete", "id": ids[4]}]))
        assert worker.get(ids[4]) is not None


def test_other_dimensions_fail_and_change_nothing(tmp_path: Path) -> None:
    with MemoryBuilder(tmp_path) as agent:
        agent.add("one", user_id="alice")
    with worker_at(tmp_path, dims=16) as worker, pytest.raises(Failed, match="other dimensions"):
        worker.add("two", ALICE)
    assert difference(tmp_path / "mem0_dir/history.db", tmp_path / "qdrant") == NOTHING


def test_mem0_cannot_swallow_a_question_to_the_model(build: Callable[..., MemoryBuilder]) -> None:
    """mem0's extraction catches Exception around the model's answer; ours is none."""
    agent = build()
    agent.memory.llm = mem0_worker.NoModel()
    with pytest.raises(mem0_worker.ModelAsked):
        agent.memory.add("Alice lives in Lisbon", user_id="alice")
    assert agent.points() == {}


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ("self.llm.generate_response(messages)", "asked a language model"),
        ("self.embedding_model.embed('text', 'add')", "asked an embedder"),
        ("__import__('socket').create_connection(('127.0.0.1', 9), 1)", "asked the network"),
    ],
)
def test_a_question_to_a_model_ends_the_worker(asks: str, said: str, tmp_path: Path) -> None:
    """A mem0 (of ours, for this) that asks even for `infer=False`, and swallows what an `except Exception` can."""
    fake = fake_mem0(
        tmp_path,
        "class Memory:\n"
        "    from_config = classmethod(lambda cls, config: cls())\n"
        "    def update(self): pass\n"
        "    def add(self, messages, infer=True, **scope):\n"
        f"        try:\n            {asks}\n"
        "        except Exception:\n            return []\n",
    )
    with worker_at(tmp_path, interpreter=fake, embedder="none") as worker:
        process = worker._process
        with pytest.raises(Failed, match=said):
            worker.add("SECRET", ALICE)
        assert process is not None
        assert process.wait(10) == mem0_worker.EXIT_MODEL_ASKED


def fake_mem0(folder: Path, source: str) -> Path:
    """An interpreter that has `source` as its mem0."""
    package = folder / "site" / "mem0"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder / "site"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_an_interpreter_without_mem0(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(plain)], check=True)
    with (
        pytest.raises(UsageProblem, match="has no mem0"),
        worker_at(tmp_path, interpreter=plain / "bin/python"),
    ):
        pass
    with (
        pytest.raises(UsageProblem, match="No such file"),
        worker_at(tmp_path, interpreter=tmp_path / "none"),
    ):
        pass
    assert not (tmp_path / "qdrant").exists()


def test_relative_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="absolute"):
        worker_at(tmp_path, history="history.db")


def test_a_mem0_that_prints_and_breaks_shows_nothing(tmp_path: Path) -> None:
    """An interpreter whose mem0 prints memories, then dies: the user sees a class name, not the print."""
    fake = fake_mem0(
        tmp_path,
        "import os, sys\nprint('SECRET out'); print('SECRET err', file=sys.stderr)\n"
        "print('pydantic.ValidationError: SECRET', file=sys.stderr); sys.stderr.flush(); os._exit(7)\n",
    )
    with pytest.raises(Failed) as caught, worker_at(tmp_path, interpreter=fake):
        pass
    assert caught.value.message == f"mem0's worker under {fake} ended by itself: ValidationError"


def test_a_worker_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mem0api, "_START_S", 0.2)
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 600\n")
    fake.chmod(0o755)
    began, within = time.monotonic(), Allowance()
    with pytest.raises(Failed, match="did not answer"), worker_at(tmp_path, interpreter=fake):
        pass
    assert time.monotonic() - began < within(60)  # and not the 600 of its sleep


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that holds an open worker and tells the worker's pid."""
    code = (
        "import sys, time\n"
        "from mem0audit.stores.mem0api import Mem0Worker\n"
        f"f = {str(tmp_path)!r}\n"
        "w = Mem0Worker(sys.executable, f + '/mem0_dir/history.db', f + '/qdrant', 'mem0', f + '/mem0_dir', 8,\n"
        "    embedder='offline')\n"
        "with w:\n    print(w._process.pid, flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.thorough
def test_no_worker_outlives_us(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())
    os.kill(pid, 0)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            break
        if state == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker is still there")
    with worker_at(tmp_path) as worker:
        worker.add("the store is free again", ALICE)


def test_an_exception_in_the_block_ends_the_worker(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), worker_at(tmp_path) as worker:
        process = worker._process
        worker.add("one", ALICE)
        raise ZeroDivisionError
    assert process is not None
    assert process.returncode is not None


def test_an_older_store_is_migrated_and_written(tmp_path: Path) -> None:
    """The log of 0.1.40 has 9 columns: the installed mem0 migrates it at the start, and goes on."""
    copy = copy_store("0.1.40", tmp_path)
    with worker_at(copy.folder) as worker:
        new = worker.add("one more", ALICE)
    assert new in RawPoints(copy.vectors).points()
    assert difference(copy.history, copy.vectors) == NOTHING


@pytest.mark.root
def test_it_runs_as_the_owner(tmp_path: Path) -> None:
    """What it writes belongs to the store's owner, with an interpreter that this owner can run."""
    nobody = pwd.getpwnam("nobody")
    tmp_path.chmod(0o755)
    folder = Path(tempfile.mkdtemp(prefix="mem0audit-owner-", dir="/var/tmp"))
    python = folder / "python"
    try:
        # tests' own Python may lie in a folder that only root can enter; what counts is whose process it is
        python.write_text(f'#!/bin/sh\ntouch "{folder}/ran-by-$(id -un)-of-$(id -Gn)"\nexit 1\n')
        python.chmod(0o755)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        with pytest.raises(Failed), worker_at(folder, interpreter=python, user="nobody"):
            pass
        (mark,) = folder.glob("ran-by-*")
        assert mark.stat().st_uid == nobody.pw_uid
        assert mark.name == "ran-by-nobody-of-nogroup"
    finally:
        shutil.rmtree(folder)


def test_the_worker_is_plain_python_3_8() -> None:
    source = Path(mem0_worker.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= set(sys.stdlib_module_names)
