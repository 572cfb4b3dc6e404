"""The only door through which memories are added, changed or deleted: mem0's own API, in a worker.

The worker (`mem0_worker.py`) runs under the agent's own Python and mem0, so that nothing written is newer
than what the agent can read. mem0 is never imported here.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pwd
import re
import select
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from mem0audit.core.errors import Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.stores.pickles import PointVectors

_WORKER = Path(__file__).with_name("mem0_worker.py")
_START_S = 180.0
"""Importing mem0 takes 2 s, or a minute on a cold small machine. mem0 0.1.100 to 0.1.106 never come back
from opening a log with 9 columns (their migration waits for a lock that it holds), so there is a limit."""
_OPERATION_S = 120.0
AT_ONCE = 50
"""So many operations of one kind are asked for in one line: the worker need not wait for us between them."""
_EXIT_CRASHED_ON_PURPOSE = 9
_ERROR_NAME = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Asked|Interrupt))\b")


@dataclass(frozen=True)
class WorkerVersions:
    """What runs in the worker: versions as their packages say; None where a package is not there."""

    python: str
    mem0: str | None
    client: str | None


@dataclass(frozen=True)
class Unlinked:
    """What came of taking links from an entity: how many went, and whether it was deleted, linking nothing else."""

    links: int
    deleted: bool


class Mem0Worker:
    """An open `Memory` of the mem0 that `interpreter` has. A context manager: entering starts it.

    `history`, `vectors` and `mem0_dir` are absolute paths, `collection` the collection of the memories,
    `dims` its dimensions; `user` a name or number to run as (root only), the store's owner. While it is
    open it holds the store's lock, as an agent does: the store must not be in use. Opening a store with
    mem0 changes it (it migrates the log, creates missing collections); so only on stores that shall change.

    `embedder` is "none" (a model or the network asked for anything ends the run), "offline" (each text gets a vector
    computed from it: the demo and tests), or "config": the one of `config`, the dict that the user gives to
    `Memory.from_config`, whose paths, language model, graph and reranker are not used. `check` is called with the
    versions before anything is opened, and may raise.

    Every method raises `Mem0auditError` (one line, no memory text): `Refused` where the store is in use or
    this mem0 cannot do it, `UsageProblem` where the interpreter has no mem0, `Failed` otherwise. Leaving
    the block ends the worker in any case.
    """

    def __init__(
        self,
        interpreter: str,
        history: str | Path,
        vectors: str | Path,
        collection: str,
        mem0_dir: str | Path,
        dims: int | None,
        user: str | int | None = None,
        *,
        embedder: Literal["none", "offline", "config"] = "none",
        config: Mapping[str, Any] | None = None,
        check: Callable[[WorkerVersions], None] | None = None,
    ) -> None:
        self.interpreter = interpreter
        self.user = user
        self._check = check
        self._open = {
            "op": "open",
            "history": str(history),
            "vectors": str(vectors),
            "collection": collection,
            "mem0_dir": str(mem0_dir),
            "dims": dims,
            "embedder": embedder,
            "config": None if config is None else dict(config),
        }
        for name in ("history", "vectors", "mem0_dir"):
            if not Path(str(self._open[name])).is_absolute():
                raise UsageProblem(f"the path of {name} must be absolute: {self._open[name]}")
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: int = -1
        self._buffer = b""
        self._unread = 0
        self._noise: collections.deque[str] = collections.deque(maxlen=200)
        self._drain: threading.Thread | None = None
        self.versions = WorkerVersions("", None, None)
        self.overwrites = False

    def __enter__(self) -> Mem0Worker:
        self._start()
        try:
            said = self._ask({"op": "hello"}, _START_S)
            self.versions = WorkerVersions(said["python"], said["mem0"], said["client"])
            if self.versions.mem0 is None:
                raise UsageProblem(
                    f"{self.interpreter} has no mem0",
                    "name the agent's Python with --agent-python",
                )
            if self._check is not None:
                self._check(self.versions)
            self.overwrites = bool(self._ask(self._open, _START_S)["overwrites"])
        except BaseException:
            self._stop(gently=False)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # gently, whatever happened to us: killed between its two writes, mem0 leaves a change that it never logged
        self._stop(gently=True)

    # -- what can be asked -----------------------------------------------------------------------

    def add(
        self,
        text: str,
        owner: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        expiration_date: str | None = None,
        role: str | None = None,
        name: str | None = None,
    ) -> str:
        """Adds one text as it is, for an owner like `{"user_id": "alice"}`; the new memory's id.

        `metadata` may hold `created_at` (ISO 8601), which mem0 keeps from 1.0.9 on. `expiration_date` is `YYYY-MM-DD`
        (mem0 2.0.12 and later). `role` is "user" where it is None, `name` that of who says it."""
        request: dict[str, Any] = {"op": "add", "text": text, "owner": dict(owner)}
        request.update(expiration_date=expiration_date, role=role, name=name)
        if metadata is not None:
            request["metadata"] = dict(metadata)
        return str(self._ask(request)["id"])

    def update(self, memory_id: str, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Replaces the text of a memory; `metadata` is merged (mem0 1.0.8 and later)."""
        request: dict[str, Any] = {"op": "update", "id": memory_id, "text": text}
        if metadata is not None:
            request["metadata"] = dict(metadata)
        self._ask(request)

    def expire(self, memory_id: str, date: str | None) -> None:
        """Sets the day (`YYYY-MM-DD`) after which mem0 hides a memory, or clears it (mem0 2.0.12 on)."""
        self._ask({"op": "expire", "id": memory_id, "date": date})

    def rewrite(
        self,
        memory_id: str | int,
        text: str,
        vectors: PointVectors,
        metadata: Mapping[str, Any] | None = None,
        **expiration: str | None,
    ) -> None:
        """mem0's `update` of a memory that keeps its text and its vectors, which are given as they lie on the disk.

        Renews the hash and `updated_at`; `metadata` is merged; `expiration_date="YYYY-MM-DD"` or None sets or clears
        the day. Refused below mem0 2.0.7, whose update loses custom metadata."""
        if vectors.dense is None:
            raise Refused(f"memory {memory_id} has no vector to keep")
        request: dict[str, Any] = {"op": "rewrite", "id": memory_id, "text": text, "vector": vectors.dense}
        if vectors.keyword is not None:
            request["keyword"] = {"indices": vectors.keyword[0], "values": vectors.keyword[1]}
        if metadata is not None:
            request["metadata"] = dict(metadata)
        if expiration:
            request["expiration_date"] = expiration["expiration_date"]
        self._ask(request)

    def delete(self, memory_id: str | int) -> bool:
        """Deletes one memory by id, and asks nothing of any model; False where there is none."""
        return bool(self._ask({"op": "delete", "id": memory_id})["deleted"])

    def delete_each(self, memory_ids: Iterable[str | int]) -> Iterator[bool]:
        """As `delete`, of one after the other; each answer as it is there. A few more may be done when it is left."""
        for said in self._ask_each({"op": "delete", "id": one} for one in memory_ids):
            yield bool(said["deleted"])

    def unlink(self, entity_id: str | int, memory_ids: Collection[str]) -> Unlinked:
        """Takes links to these memories from one entity; one that links nothing then is deleted."""
        said = self._ask({"op": "unlink", "id": entity_id, "memories": sorted(memory_ids)})
        return Unlinked(int(said["links"]), bool(said["deleted"]))

    def unlink_each(self, links: Iterable[tuple[str | int, Collection[str]]]) -> Iterator[Unlinked]:
        """As `unlink`, of one entity after the other; each answer as it is there."""
        wanted = ({"op": "unlink", "id": one, "memories": sorted(dead)} for one, dead in links)
        for said in self._ask_each(wanted):
            yield Unlinked(int(said["links"]), bool(said["deleted"]))

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """One memory as mem0 gives it; None where there is none."""
        found: dict[str, Any] | None = self._ask({"op": "get", "id": memory_id})["memory"]
        return found

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """The changes of one memory, as mem0's `history()` gives them."""
        found: list[dict[str, Any]] = self._ask({"op": "history", "id": memory_id})["history"]
        return found

    def search(self, query: str, owner: Mapping[str, str], limit: int = 10) -> list[dict[str, Any]]:
        """What mem0 finds for a query, best first. Needs an embedder."""
        request = {"op": "search", "query": query, "owner": dict(owner), "limit": limit}
        found: list[dict[str, Any]] = self._ask(request)["results"]
        return found

    def delete_all(self, owner: Mapping[str, str]) -> None:
        """mem0's `delete_all` for one owner. `*` is refused: mem0 1.0.8 to 2.2.1 take it for everybody."""
        self._ask({"op": "delete_all", "owner": dict(owner)})

    def reset(self) -> None:
        """mem0's `reset()`: empties the log and recreates the collection."""
        self._ask({"op": "reset"})

    def crash_after_vector(self, operation: str, **arguments: Any) -> None:
        """Has the worker die inside one operation (`add`, `update`, `delete` with the arguments of the
        protocol), after the vector was written and before the log: what a kill leaves. For the demo and
        tests. The worker is gone afterwards."""
        process = self._send({"op": "crash_after_vector", "then": {"op": operation, **arguments}})
        answer = self._read_line(_OPERATION_S)
        if answer is not None:
            raise self._problem(operation, answer)
        if process.wait() != _EXIT_CRASHED_ON_PURPOSE:
            raise self._death()

    # -- lines in, lines out ---------------------------------------------------------------------

    def _start(self) -> None:
        self._answers, theirs = os.pipe()
        try:
            # -B: an agent's site-packages get no .pyc files of ours
            self._process = subprocess.Popen(
                # and its source as an argument: the store's owner need not be able to read our folders
                [self.interpreter, "-B", "-c", _WORKER.read_text("utf-8"), "--answers", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs,),
                cwd="/",
                start_new_session=True,
                **_run_as(self.user),
            )
        except (OSError, KeyError) as error:
            os.close(self._answers)
            why = error.strerror if isinstance(error, OSError) else "no such user"
            raise UsageProblem(
                f"cannot run {self.interpreter}: {why}", "name the agent's Python with --agent-python"
            ) from None
        finally:
            os.close(theirs)
        assert self._process.stderr is not None
        self._drain = threading.Thread(target=self._read_noise, args=(self._process.stderr,), daemon=True)
        self._drain.start()

    def _read_noise(self, stream: IO[bytes]) -> None:
        """Keeps the end of what mem0 prints, to tell why it died; it is never shown: it may hold memories."""
        for line in stream:
            self._noise.append(line[:2000].decode("utf-8", "replace").rstrip())

    def _send(self, request: Mapping[str, Any] | list[Mapping[str, Any]]) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.stdin is None:
            raise Failed("the worker is not running")
        for _ in range(self._unread):  # of operations whose answers nobody waited for
            self._read_line(_OPERATION_S)
        self._unread = 0
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        return self._process

    def _ask(self, request: Mapping[str, Any], limit_s: float = _OPERATION_S) -> dict[str, Any]:
        """One operation and its answer; raises what the answer says is wrong."""
        self._send(request)
        return self._answered(request, limit_s)

    def _ask_each(self, requests: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Several operations, and the answer of each as it comes; raises at the first that failed."""
        rest = iter(requests)
        while some := list(islice(rest, AT_ONCE)):
            self._send(some)
            self._unread = len(some)
            for request in some:
                answer = self._answered(request, _OPERATION_S)
                self._unread -= 1
                yield answer

    def _answered(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        answer = self._read_line(limit_s)
        if answer is None:
            raise self._death()
        if answer["ok"]:
            return answer
        self._unread = 0
        raise self._problem(str(request["op"]), answer)

    def _read_line(self, limit_s: float) -> dict[str, Any] | None:
        """The next answer; None when the worker ended instead."""
        process = self._process
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            ended = process is None or process.poll() is not None
            # once it has ended nothing more can come; the pipe may still be open in a process of its own
            wait_s = 0 if ended else min(1.0, deadline - time.monotonic())
            if wait_s < 0:
                self._stop(gently=False)
                raise Failed(
                    f"mem0 {self.versions.mem0 or ''} did not answer within {limit_s:.0f} s and was stopped"
                )
            if not select.select([self._answers], [], [], wait_s)[0]:
                if ended:
                    return None
                continue
            piece = os.read(self._answers, 65536)
            if not piece:
                return None
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _problem(self, operation: str, answer: Mapping[str, Any]) -> Mem0auditError:
        """What to raise for an answer that is not ok."""
        error, detail = str(answer["error"]), str(answer["detail"])
        vectors = self._open["vectors"]
        if error == "Refusal":
            return Refused(f"mem0 {self.versions.mem0}: {detail}")
        if error == "ModelAsked":
            return Failed(f"{detail} at {operation} (mem0 {self.versions.mem0}), and was stopped there")
        if "in use" in detail or "locked" in detail:
            return Refused(f"{vectors}: {detail}", "stop the agent and run this again")
        said = f"{detail} ({error})" if detail else error
        return Failed(f"mem0 {self.versions.mem0} failed at {operation}: {said}")

    def _death(self) -> Failed:
        """What to say of a worker that ended by itself."""
        status: int | None = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(10)
        if self._drain is not None:
            self._drain.join(2)
        names = [match.group(1) for line in self._noise if (match := _ERROR_NAME.match(line))]
        why = names[-1] if names else f"exit status {status}"
        return Failed(f"mem0's worker under {self.interpreter} ended by itself: {why}")

    def _stop(self, *, gently: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            if gently:
                # the end of the input is enough: the worker closes the stores and leaves
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            if self._drain is not None:
                self._drain.join(5)
            process.stderr.close()
            os.close(self._answers)


def _run_as(user: str | int | None) -> dict[str, Any]:
    """Arguments of Popen: the environment, and the user with that user's groups. KeyError: no such user.

    The environment is ours, less what would make the agent's Python another one. HOME, where its user
    site-packages are, is the user's; once it has started, the worker points HOME at mem0's folder.
    """
    drop = {"PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONWARNINGS", "PYTHONOPTIMIZE"}
    if os.geteuid() == 0:
        drop.add("PYTHONPATH")  # whoever called sudo may have set it
    environment = {k: v for k, v in os.environ.items() if k not in drop}
    environment.update(MEM0_TELEMETRY="False", PYTHONUTF8="1")
    if user is None:
        return {"env": environment}
    entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    if entry.pw_uid == os.geteuid():
        return {"env": environment}
    environment.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
    for name in [name for name in environment if name.startswith("XDG_")]:
        del environment[name]
    return {
        "env": environment,
        "user": entry.pw_uid,
        "group": entry.pw_gid,
        "extra_groups": os.getgrouplist(entry.pw_name, entry.pw_gid),
    }
