"""Restore a snapshot: into a new directory, or in place of an install's own stores. Both stores or neither.

In place, in this order: the copies are staged beside their targets and proven; nobody may have the install open;
Qdrant's locks are taken; an intent is written beside both stores; each piece is exchanged; the result is audited;
what was replaced is put aside under a dated name. Whatever cuts that off, the intent and what lies on the disk
say how far it came, and the next run finishes it or takes it back.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from mem0audit.core import restore as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.erasures import Erasure
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.model import Agent, Install
from mem0audit.core.restore import Half, Intent, Interrupted, Piece, Restored, RestorePlan, Target, ToErase
from mem0audit.core.snapshot import Manifest
from mem0audit.core.times import shown
from mem0audit.core.words import shell_word
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved
from mem0audit.install.places import look_at
from mem0audit.operations.copied import install_of
from mem0audit.operations.erasecopy import erase_in_copy, plan_erasing
from mem0audit.operations.erasures import damaged_beside, erasures_on_record
from mem0audit.operations.interrupted import (
    cut_off_manifest,
    differs,
    finish,
    install_of_intent,
    interrupted,
    restored_install,
    settle,
    take_back,
    words,
    write_intent,
)
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import Progress, no_progress
from mem0audit.operations.seal import explain
from mem0audit.operations.targets import (
    SLACK_BYTES,
    check_names,
    check_owners,
    check_room,
    folder_owner,
    in_use,
    is_mount_point,
    no_room,
    only_linux,
    owners_of,
    refuse_in_use,
    strangers,
    targets_of,
)
from mem0audit.operations.verify import verify
from mem0audit.stores import exchange, files, snapshots
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file

# --- Plan ------------------------------------------------------------------------------------------


def plan_restore(
    snapshot: str,
    host: Host,
    *,
    to: str | None = None,
    install: Install | None = None,
    ledger: bool = True,
    without_erasure_record: bool = False,
    agent_python: str | None = None,
    progress: Progress | None = None,
) -> RestorePlan:
    """What `restore` would do: into `to` (absolute), or else in place of the install's stores. Changes nothing.

    Who was erased since the snapshot was taken, by the ledger or by the record beside the snapshots, is erased in the
    copies before they are put in place. `agent_python` names the agent's Python where there is no install.

    The snapshot is verified at the default depth. Raises Refused where it is not good or the restore would be
    unsafe (in use, no room, a place that cannot be exchanged, somebody erased since whom no mem0 may delete in it, no
    record of erasures), CouldNotRead where there is no snapshot. `ledger` False: the ledger is not asked.

    A restore of this very snapshot that was cut off needs it no more, and is settled though it is gone, damaged or of
    somebody erased since: both halves of its copies are staged, or lie in place.
    """
    only_linux()
    of = install
    try:
        manifest = verified(snapshot, progress)
        if manifest.server is not None:
            raise Refused(
                f"{snapshot} holds collections of a Qdrant server, not of an embedded folder",
                "name the server that they go onto with --qdrant-url",
            )
        of = install or original(manifest, agent_python)
        erasures, not_read = erasures_since(manifest, snapshot, of, host, ledger, without_erasure_record)
        uid = _owner(to, install, host)[0]
        say = progress or no_progress
        erase = plan_erasing(snapshot, manifest, erasures, of, host, say, ledger=ledger, uid=uid)
    except (CouldNotRead, Refused) as problem:
        plan = None if install is None else _plan_to_settle(snapshot, install, host, ledger, problem)
        if plan is None:
            raise
        return plan
    if to is not None:
        check_new(to, snapshot, manifest, host, times_of(erase))
        warnings = _warnings(manifest, snapshot, None, None)
        if look_at(to, host).volatile:
            warnings += (f"{to} lies in memory: it is gone at the next reboot. The snapshot stays.",)
        return RestorePlan(
            snapshot,
            manifest,
            to=to,
            warnings=warnings,
            ledger=ledger,
            not_read=not_read,
            erase=erase,
            agent_python=agent_python,
        )
    assert install is not None
    targets = targets_of(install, snapshot, host)
    refuse_left_moves(install, host)
    check_names([target.real for target in targets])
    unseen = refuse_in_use(install, host)
    check_room(targets, manifest, host, times_of(erase))
    check_owners(targets)
    agent = whose_mem0(install, (), host)
    return RestorePlan(
        snapshot,
        manifest,
        install=install,
        targets=targets,
        warnings=_warnings(manifest, snapshot, install, agent) + _about_places(targets),
        unseen=unseen,
        interrupted=_cut_off(install, snapshot, erase.salts, host),
        ledger=ledger,
        not_read=not_read,
        erase=erase,
    )


def _cut_off(install: Install, snapshot: str, salts: Collection[str], host: Host) -> Interrupted | None:
    """A restore that was cut off here, and what is done about it: of this snapshot none is finished that does not know
    of these erasures."""
    found = interrupted(install, host)
    if found is None or found.snapshot != snapshot or found.course != "finish":
        return found
    behind = core.is_behind(salts, found.erased, audited=found.audited)
    return replace(found, course="back") if behind else found


def times_of(erase: ToErase) -> int:
    """How many times its size a copy needs: rebuilding a file takes a copy, a journal, and what it is built in."""
    return 4 if erase.anything else 1


def original(manifest: Manifest, agent_python: str | None) -> Install:
    """The install that a snapshot was taken of, where it lay."""
    server = None if manifest.server is None else manifest.vectors
    return Install(
        manifest.history,
        manifest.vectors if server is None else None,
        manifest.collection,
        manifest.mem0_dir,
        agent_python=agent_python,
        server_url=server,
    )


def _owner(to: str | None, install: Install | None, host: Host) -> tuple[int, int]:
    """Who will own what is restored. Raises Refused."""
    if to is None:
        assert install is not None
        return owners_of(targets_of(install, None, host))["vectors"]
    return owner_of_new(to, host)


def owner_of_new(to: str, host: Host) -> tuple[int, int]:
    """Who will own what is restored into a new folder. Raises Refused."""
    try:
        target = Path(resolved(to, host))
    except OSError as error:
        raise Refused(f"{to}: {(error.strerror or 'cannot be looked into').lower()}") from None
    owner = exchange.owner_of(target)
    if owner is None and os.geteuid() == 0:
        owner = folder_owner(target.parent)
    return owner or (os.geteuid(), os.getegid())


def verified(snapshot: str, progress: Progress | None) -> Manifest:
    """The manifest of a snapshot that holds what it says. Raises Refused, CouldNotRead."""
    verdict = verify(snapshot, "default", progress)
    if verdict.manifest is None or not verdict.good:
        wrong = [f"{p.path}: {p.detail}" for p in verdict.problems] or [n.why for n in verdict.not_checked]
        raise Refused(
            f"{snapshot} is not what was written ({wrong[0]}): it is not restored",
            f"everything that is wrong with it: mem0audit snapshot verify {shell_word(snapshot)}",
        )
    return verdict.manifest


def _plan_to_settle(
    snapshot: str, install: Install, host: Host, ledger: bool, problem: Mem0auditError
) -> RestorePlan | None:
    """What to do where the restore of a snapshot was cut off that cannot be read any more; None where none was.

    Raises Refused where the install is in use.
    """
    found = interrupted(install, host)
    if found is None or found.snapshot != snapshot or found.course not in ("finish", "back"):
        return None
    targets = targets_of(install, snapshot, host)
    manifest = cut_off_manifest([Path(t.staging) for t in targets])
    if manifest is None:
        return None
    unseen = refuse_in_use(install, host)
    record = erasures_on_record(install, _folder_of(snapshot), host, ledger=ledger)
    said = f"It is not restored ({problem.message}): what was begun is settled, and not begun again."
    return RestorePlan(
        snapshot,
        manifest,
        install=install,
        targets=targets,
        warnings=(said,),
        unseen=unseen,
        interrupted=_cut_off(install, snapshot, [one.salt for one in record.for_copy(manifest)], host),
        ledger=ledger,
        lost=problem.message,
    )


def erasures_since(
    manifest: Manifest, snapshot: str, of: Install, host: Host, ledger: bool, without: bool
) -> tuple[tuple[Erasure, ...], tuple[str, ...]]:
    """The erasures that may cover what a snapshot holds; and what record could not be read, where it was said to go on
    without one. Raises Refused where no record can be read and that was not said."""
    record = erasures_on_record(of, _folder_of(snapshot), host, ledger=ledger)
    not_read = tuple(f"{gap.what}: {gap.why}" for gap in record.not_read)
    if not record.known and not without:
        raise Refused(
            f"no record of erasures can be read ({'; '.join(not_read)}): it is not known whether somebody was erased "
            "since this snapshot was taken",
            "to restore all the same: --without-erasure-record",
        )
    damaged = damaged_beside(record)
    if damaged and not without:
        raise Refused(
            f"{damaged[0].what} {damaged[0].why}: the ledger that is here need not be the one that knows who was "
            "erased since this snapshot was taken",
            "to go by the ledger alone: --without-erasure-record",
        )
    return record.for_copy(manifest), not_read if damaged or not record.known else ()


def _folder_of(snapshot: str) -> str:
    return str(Path(os.path.realpath(snapshot)).parent)


def refuse_erased(manifest: Manifest, snapshot: str, install: Install, host: Host, ledger: bool) -> None:
    """Refuses a snapshot that is older than an erasure on record, where it is to be published as it is. Raises
    Refused."""
    since = erasures_since(manifest, snapshot, install, host, ledger, True)[0]
    if since:
        raise Refused(
            f"{snapshot} is older than an erasure ({shown(since[-1].at)}; {len(since)} since it was taken): it would "
            "bring back what was erased",
            f"a restore erases it in the copy first:  mem0audit snapshot restore {shell_word(snapshot)} --to NEWDIR",
        )


def _warnings(
    manifest: Manifest, snapshot: str, install: Install | None, agent: Agent | None
) -> tuple[str, ...]:
    copy = install_of(manifest, Path(snapshot))
    assert copy.vectors is not None
    collections = EmbeddedStore(copy.vectors.value).layout().collections
    keys = [key for info in collections for key in info.config_keys]
    schema = read_history_file(copy.history.value).schema
    on_disk = install.on_disk if install is not None else None
    said = core.warnings_for(manifest, schema, keys, agent, on_disk)
    names = {info.name for info in collections}
    if install is not None and install.collection.decided_by != "mem0's default":
        wanted = install.collection.value
        if wanted not in names:
            listed = ", ".join(sorted(names)) or "none"
            said += (f"The configuration names the collection {wanted}; the snapshot holds: {listed}.",)
    return said


def _about_places(targets: Sequence[Target]) -> tuple[str, ...]:
    said = [
        f"{entry} is none of Qdrant's: it is put aside with the folder." for entry in strangers(targets[1])
    ]
    said += [
        f"{t.path} lies on a {t.filesystem}, in memory: it is gone at the next reboot."
        for t in targets
        if t.volatile
    ]
    return tuple(said)


def check_new(to: str, snapshot: str, manifest: Manifest, host: Host, times: int = 1) -> None:
    """Refuses a directory that a restore cannot begin in. Raises Refused."""
    try:
        real = Path(resolved(to, host))
        if real.exists() and not real.is_dir():
            raise Refused(f"{to}: is no folder", "name a new one with --to")
        if real.is_dir() and any(real.iterdir()):
            raise Refused(
                f"{to} is not empty: a restore fills a new or an empty folder", "name another with --to"
            )
    except OSError as error:
        raise Refused(f"{to}: {(error.strerror or 'cannot be looked into').lower()}") from None
    above = next(folder for folder in real.parents if os.path.lexists(folder))
    if not above.is_dir():
        raise Refused(f"{to}: {above} is no folder", "name another one with --to")
    if is_mount_point(str(real), host):
        raise Refused(
            f"{to} is a mount point, and cannot be put in place by one rename",
            f"name a folder in it: --to {to}/mem0",
        )
    source = Path(os.path.realpath(snapshot))
    forbidden = [source]
    if snapshot_core.NAME.fullmatch(source.name):
        forbidden.append(source.parent)
    for folder in forbidden:
        if real == folder or folder in real.parents:
            raise Refused(f"{to} lies inside {folder}, the snapshots", "name a folder elsewhere with --to")
    for folder in (real, *real.parents):
        if (folder / "meta.json").exists() and (folder / "collection").is_dir():
            raise Refused(f"{to} lies inside the vector store {folder}", "name a folder elsewhere with --to")
    free = look_at(str(real), host).free_bytes
    if free is not None and free < manifest.size_bytes * times + SLACK_BYTES:
        no_room(to, free, manifest, times)


# --- Apply ------------------------------------------------------------------------------------------------


def apply_restore(
    plan: RestorePlan,
    host: Host,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
) -> Restored:
    """Does what was planned. Both stores are restored or neither is.

    Raises Refused where somebody has the install open meanwhile, Failed where it did not succeed: the message says
    whether nothing was changed, it was taken back, or the same command finishes it.
    """
    say = progress or no_progress
    started = time.monotonic()
    done = _into_new(plan, host, say) if plan.to is not None else _in_place(plan, host, say, now)
    return replace(done, seconds=time.monotonic() - started)


def _into_new(plan: RestorePlan, host: Host, say: Progress) -> Restored:
    assert plan.to is not None
    target = Path(resolved(plan.to, host))
    staged = Path(core.staging_beside(str(target)))
    check_no_newer(plan, host)
    owner = owner_of_new(plan.to, host)
    published = False
    try:
        exchange.make_parents(target.parent, owner)
        with exchange.staging(staged) as there:
            try:
                if there:
                    exchange.empty_staging([staged])
                _stage(plan.snapshot, plan.manifest, staged, staged, say)
                manifest = _erased(plan, staged, staged, host, say, owner)
                exchange.take_after(staged, target if target.is_dir() else None, owner)
                files.sync_tree(staged)
                exchange.publish_folder(staged, target)
                published = True
            except BaseException:
                if exchange.identity_of(staged) is not None:
                    with suppress(OSError):
                        exchange.remove_staging([staged])
                raise
    except (OSError, sqlite3.Error) as error:
        if published or (exchange.identity_of(target / snapshot_core.HISTORY) is not None):
            raise Failed(
                f"{plan.to} is restored, but its folder could not be written to the disk: {words(error)}"
            ) from None
        raise Failed(
            f"{plan.to}: {words(error)}; nothing was restored", "the same command begins again"
        ) from None
    return Restored(
        plan.snapshot,
        manifest,
        history=f"{plan.to}/{snapshot_core.HISTORY}",
        vectors=f"{plan.to}/{snapshot_core.VECTORS}",
        in_place=False,
        warnings=plan.warnings,
        erased=plan.erase if plan.erase.anything else None,
    )


def check_no_newer(plan: RestorePlan, host: Host) -> None:
    """Raises Refused where somebody was erased after the plan was made."""
    of = plan.install or original(plan.manifest, plan.agent_python)
    record = erasures_on_record(of, _folder_of(plan.snapshot), host, ledger=plan.ledger)
    if not {one.salt for one in record.for_copy(plan.manifest)} <= set(plan.erase.salts):
        raise Refused("somebody was erased just now; nothing was changed", "the same command begins again")


def _erased(
    plan: RestorePlan, history: Path, vectors: Path, host: Host, say: Progress, owner: tuple[int, int]
) -> Manifest:
    """Erases in the staged copies who was erased since; the manifest of what they hold then. Raises as
    erase_in_copy."""
    if not plan.erase.anything:
        return plan.manifest
    of = plan.install or original(plan.manifest, plan.agent_python)
    return erase_in_copy(
        plan.erase,
        plan.manifest,
        history / snapshot_core.HISTORY,
        vectors / snapshot_core.VECTORS,
        of,
        host,
        say,
        ledger=plan.ledger,
        owner=owner,
    )


def _stage(snapshot: str, manifest: Manifest, history: Path, vectors: Path, say: Progress) -> None:
    """Both halves copied into their staging folders, each byte proven, and read there as a pair.

    Raises Failed where the copy is not what the manifest says, OSError, sqlite3.Error.
    """
    files.make_folders(vectors / snapshot_core.VECTORS)
    for number, file in enumerate(manifest.files):
        say("copying both stores", number, len(manifest.files))
        folder = history if file.path == snapshot_core.HISTORY else vectors
        target = folder / file.path
        if exchange.stage_file(Path(snapshot) / file.path, target) != file.sha256:
            raise Failed(
                f"{snapshot}/{file.path} was read with other bytes than the manifest has; nothing was changed",
                f"mem0audit snapshot verify {shell_word(snapshot)}",
            )
        if snapshots.digest(target) != (file.size_bytes, file.sha256):
            raise Failed(
                f"{target} does not hold what was written to it; nothing was changed", "check that disk"
            )
        if file.journal_mode == "wal" and files.set_journal_mode(target, "wal") != "wal":
            raise Failed(f"{target} cannot be given write-ahead logging; nothing was changed")
    exchange.make_lock(vectors / snapshot_core.VECTORS)
    say("reading the copies as a pair", None, None)
    wrong = differs(manifest, str(history / snapshot_core.HISTORY), str(vectors / snapshot_core.VECTORS), say)
    if wrong:
        raise Failed(f"the staged copies are not the snapshot's pair ({wrong}); nothing was changed")


# --- In place -----------------------------------------------------------------------------------------------


def _in_place(plan: RestorePlan, host: Host, say: Progress, now: Callable[[], float]) -> Restored:
    install = plan.install
    assert install is not None and install.vectors is not None
    targets = targets_of(install, plan.snapshot, host)
    settled, finished = _settle_first(targets, plan, host, say)
    if finished is not None and finished.behind and plan.lost is not None:
        said = "Somebody was erased after it was put in place: delete them in it too (mem0audit delete)."
        finished = replace(finished, warnings=(*finished.warnings, said), behind=False)
    if finished is not None and _is_this(finished, plan, targets) and not finished.behind:
        return replace(finished, settled=settled, resumed=True, warnings=plan.warnings + finished.warnings)
    if plan.lost is not None:
        how = "the restore that was cut off is taken back, both stores are as they were before it"
        raise Failed(
            f"{plan.lost}; {how if settled is not None else 'nothing was changed'}",
            "restore another one:  mem0audit snapshot list",
        )
    targets = targets_of(install, plan.snapshot, host)
    owners = owners_of(targets)
    with ExitStack() as stack:
        folders, _ = _open_staging(targets, owners, stack)
        try:
            unseen = refuse_in_use(install, host)
            check_no_newer(plan, host)
            check_room(targets, plan.manifest, host, times_of(plan.erase))
            manifest = _stage_beside(plan, targets, owners, host, say)
            done = _exchange(
                plan, manifest, install, targets, host, say, snapshot_core.name_of(now()), unseen
            )
        except BaseException as error:
            _give_up(folders)
            if isinstance(error, (OSError, sqlite3.Error)):
                raise Failed(
                    f"{words(error)}; nothing was changed", "the same command begins again"
                ) from None
            raise
    erased = plan.erase if plan.erase.anything else None
    return replace(done, settled=settled, warnings=plan.warnings + done.warnings, erased=erased)


def _settle_first(
    targets: tuple[Target, Target], plan: RestorePlan, host: Host, say: Progress
) -> tuple[Interrupted | None, Restored | None]:
    """Settles what a restore that was cut off left, where there is something; staging folders that were made for
    that alone go again."""

    def newer(intent: Intent) -> set[str]:
        manifest = snapshot_core.parse_manifest(intent.manifest.encode("ascii"))
        folder = _folder_of(intent.snapshot)
        record = erasures_on_record(install_of_intent(intent), folder, host, ledger=plan.ledger)
        return {one.salt for one in record.for_copy(manifest)}

    def chain(done: Restored) -> Restored:
        assert plan.install is not None
        is_this = (done.history, done.vectors) == (targets[0].real, targets[1].real)
        install = plan.install if is_this else restored_install(done)
        return put_to_the_chain(done, plan, install, host, say)

    with ExitStack() as stack:
        folders, there = _open_staging(targets, owners_of(targets), stack)
        try:
            return settle(folders, there, host, say, stack, newer, chain)
        finally:
            exchange.remove_empty(folders)


def _is_this(finished: Restored, plan: RestorePlan, targets: tuple[Target, Target]) -> bool:
    """Whether what was finished is what is asked for: this snapshot, in place of these two stores."""
    both = (targets[0].real, targets[1].real)
    return finished.snapshot == plan.snapshot and (finished.history, finished.vectors) == both


def _open_staging(
    targets: Sequence[Target], owners: dict[str, tuple[int, int]], stack: ExitStack
) -> tuple[list[Path], bool]:
    """The staging folders of both halves, made and locked; and whether one was there. Raises Failed, Refused."""
    folders = []
    there = False
    try:
        for target in targets:
            folder = Path(target.staging)
            exchange.make_parents(folder.parent, owners[target.half])
            there |= stack.enter_context(exchange.staging(folder))
            folders.append(folder)
    except OSError as error:
        exchange.remove_empty(folders)
        raise Failed(f"{words(error)}; nothing was changed") from None
    return folders, there


def _give_up(folders: Sequence[Path]) -> None:
    """Clears staging folders away after a failure, unless an intent still needs them."""
    if any(exchange.identity_of(folder / core.INTENT) is not None for folder in folders):
        return
    with suppress(OSError):
        exchange.remove_staging([folder for folder in folders if folder.is_dir()])


def _stage_beside(
    plan: RestorePlan,
    targets: Sequence[Target],
    owners: dict[str, tuple[int, int]],
    host: Host,
    say: Progress,
) -> Manifest:
    """The copies of both halves in their staging folders, with the owners and modes of what they replace; the manifest
    of what they hold, less who was erased since."""
    history, vectors = targets
    staged = [Path(t.staging) for t in targets]
    exchange.empty_staging(staged)
    _stage(plan.snapshot, plan.manifest, staged[0], staged[1], say)
    manifest = _erased(plan, staged[0], staged[1], host, say, owners["vectors"])
    for target, name in ((history, snapshot_core.HISTORY), (vectors, snapshot_core.VECTORS)):
        old = Path(target.real) if target.exists else None
        mode = stat.S_IMODE(old.stat().st_mode) if old is not None and old.is_dir() else 0o700
        exchange.take_after(Path(target.staging) / name, old, owners[target.half], mode)
        files.sync_tree(Path(target.staging))
    return manifest


def _exchange(
    plan: RestorePlan,
    manifest: Manifest,
    install: Install,
    targets: tuple[Target, Target],
    host: Host,
    say: Progress,
    date: str,
    unseen: str | None,
) -> Restored:
    """Under both locks: the intent, the exchange, the audit; then what was replaced is put aside."""
    try:
        with _locked(targets):
            refuse_in_use(install, host)  # again: copying took its time
            intent = _intent(plan, manifest, targets, date)
            with ExitStack() as stack:
                if targets[0].exists:
                    stack.enter_context(exchange.database_locked(Path(targets[0].real)))
                say("exchanging", None, None)
                try:
                    write_intent(intent)
                    exchange.forward(intent.pieces)
                    stack.close()
                    say("auditing the result", None, None)
                    wrong = differs(manifest, intent.history, intent.vectors, say)
                    if wrong:
                        raise Failed(f"the restored pair is not the snapshot's ({wrong})")
                    intent = replace(intent, audited=True)
                    write_intent(intent)
                except BaseException as error:  # noqa: BLE001 - taken back whatever it is, and raised again
                    stack.close()
                    take_back(intent, error)
            return finish(
                manifest, intent, host, lambda done: put_to_the_chain(done, plan, install, host, say)
            )
    except exchange.InUse as problem:
        in_use(problem, unseen)


def put_to_the_chain(
    done: Restored, plan: RestorePlan, install: Install, host: Host, say: Progress
) -> Restored:
    """Explains the restore to the chain of seals, where there is one: else the next audit would find both stores
    rolled back. What keeps it from that is a warning: both are restored all the same."""
    outcome = explain(
        install, host, "restore", f"snapshot {done.manifest.name}", ledger=plan.ledger, progress=say
    )
    if outcome is None or outcome.extended:
        return done
    said = f"The chain of seals does not know of this restore ({outcome.why}): the next audit will find a difference."
    return replace(done, warnings=(*done.warnings, said))


@contextmanager
def _locked(targets: Sequence[Target]) -> Iterator[None]:
    """Qdrant's lock of the live folder, where it is there, and of the staged one: so that no agent starts between.

    What journals a dead writer left beside the log are brought into it. Raises InUse.
    """
    history, vectors = targets
    with ExitStack() as stack:
        if vectors.exists:
            stack.enter_context(exchange.store_locked(Path(vectors.real)))
        if vectors.way == "rename":
            stack.enter_context(exchange.store_locked(Path(vectors.staging) / snapshot_core.VECTORS))
        exchange.settle_journals(Path(history.real))
        yield


def _intent(plan: RestorePlan, manifest: Manifest, targets: tuple[Target, Target], date: str) -> Intent:
    history, vectors = targets
    number = 1
    stem = date
    while any(os.path.lexists(one) for one in _asides(targets, stem)):
        number += 1
        stem = f"{date}-{number}"
    return Intent(
        snapshot=plan.snapshot,
        started_at=stem,
        history=history.real,
        vectors=vectors.real,
        staging=(history.staging, vectors.staging),
        pieces=tuple(_pieces(history, stem) + _pieces(vectors, stem)),
        manifest=snapshot_core.manifest_text(manifest),
        erased=plan.erase.salts,
    )


def _asides(targets: Sequence[Target], stem: str) -> list[str]:
    return [p.aside for t in targets for p in _pieces(t, stem, summed=False)]


def _pieces(target: Target, stem: str, *, summed: bool = True) -> list[Piece]:
    """What is exchanged for one half, in order: the journals of the old log go before it does."""
    staged = Path(target.staging)
    aside = f"{target.real}.replaced-{stem}"
    if target.half == "history":
        left = [s for s in exchange.SIDES if os.path.lexists(f"{target.real}{s}")]
        pieces = [_piece("history", f"{target.real}{s}", None, f"{aside}{s}", summed) for s in left]
        name = str(staged / snapshot_core.HISTORY)
        return [*pieces, _piece("history", target.real, name, aside, summed)]
    folder = staged / snapshot_core.VECTORS
    if target.way == "rename":
        return [_piece("vectors", target.real, str(folder), aside, summed)]
    # A mount point keeps its name and its .lock: what the client reads in it is exchanged.
    found = []
    for name in ("meta.json", "collection"):
        live, new = f"{target.real}/{name}", folder / name
        if os.path.lexists(live) or os.path.lexists(new):
            fresh = str(new) if os.path.lexists(new) else None
            found.append(_piece("vectors", live, fresh, f"{live}.replaced-{stem}", summed))
    return found


def _piece(half: Half, target: str, staged: str | None, aside: str, summed: bool) -> Piece:
    old, new = exchange.identity_of(target), exchange.identity_of(staged)
    sums = exchange.sums_of(Path(staged)) if summed and staged is not None and new is not None else {}
    return Piece(half, target, staged, aside, old, new, sums)
