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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from mem0audit.core import restore as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.errors import CouldNotRead, Failed, Mem0auditError, Refused
from mem0audit.core.model import Agent, Install
from mem0audit.core.restore import Half, Intent, Interrupted, Piece, Restored, RestorePlan, Target
from mem0audit.core.snapshot import Manifest
from mem0audit.core.times import shown
from mem0audit.core.words import shell_word
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host, resolved
from mem0audit.install.places import look_at
from mem0audit.operations.copied import install_of
from mem0audit.operations.erasures import erasures_on_record
from mem0audit.operations.interrupted import (
    cut_off_manifest,
    differs,
    finish,
    interrupted,
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
    progress: Progress | None = None,
) -> RestorePlan:
    """What `restore` would do: into `to` (absolute), or else in place of the install's stores. Changes nothing.

    The snapshot is verified at the default depth. Raises Refused where it is not good or the restore would be
    unsafe (in use, no room, a place that cannot be exchanged, an erasure on record since it was taken), CouldNotRead
    where there is no snapshot. `ledger` False: the ledger's record of erasures is not asked.

    A restore of this very snapshot that was cut off needs it no more, and is settled though it is gone or damaged:
    both halves of its copies are staged, or lie in place.
    """
    only_linux()
    try:
        manifest = verified(snapshot, progress)
    except (CouldNotRead, Refused) as problem:
        plan = None if install is None else _plan_to_settle(snapshot, install, host, ledger, problem)
        if plan is None:
            raise
        return plan
    if manifest.server is not None:
        raise Refused(
            f"{snapshot} holds collections of a Qdrant server, not of an embedded folder",
            "name the server that they go onto with --qdrant-url",
        )
    not_read = check_erasures(manifest, snapshot, install, host, ledger, without_erasure_record)
    if to is not None:
        check_new(to, snapshot, manifest, host)
        warnings = _warnings(manifest, snapshot, None, None)
        if look_at(to, host).volatile:
            warnings += (f"{to} lies in memory: it is gone at the next reboot. The snapshot stays.",)
        return RestorePlan(snapshot, manifest, to=to, warnings=warnings, not_read=not_read)
    assert install is not None
    targets = targets_of(install, snapshot, host)
    refuse_left_moves(install, host)
    check_names([target.real for target in targets])
    unseen = refuse_in_use(install, host)
    check_room(targets, manifest, host)
    check_owners(targets)
    agent = whose_mem0(install, (), host)
    return RestorePlan(
        snapshot,
        manifest,
        install=install,
        targets=targets,
        warnings=_warnings(manifest, snapshot, install, agent) + _about_places(targets),
        unseen=unseen,
        interrupted=interrupted(install, host),
        ledger=ledger,
        not_read=not_read,
    )


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
    said = f"The snapshot itself cannot be read ({problem.message}): what was begun is settled, and not begun again."
    return RestorePlan(
        snapshot,
        manifest,
        install=install,
        targets=targets,
        warnings=(said,),
        unseen=unseen,
        interrupted=found,
        ledger=ledger,
        lost=problem.message,
    )


def check_erasures(
    manifest: Manifest, snapshot: str, install: Install | None, host: Host, ledger: bool, without: bool
) -> tuple[str, ...]:
    """Refuses to bring back who was erased since the snapshot was taken; gives what record could not be read.

    Raises Refused, also where no record can be read and it was not said to go on without.
    """
    folder = Path(os.path.realpath(snapshot)).parent
    record = erasures_on_record(
        install or install_of(manifest, Path(snapshot)), str(folder), host, ledger=ledger
    )
    since = record.since(manifest.taken_at)
    if since:
        raise Refused(
            f"{snapshot} is older than an erasure ({shown(since[-1].at)}; {len(since)} since it was taken): it would "
            "bring back what was erased",
            "restore a snapshot that was taken since:  mem0audit snapshot list",
        )
    not_read = tuple(f"{gap.what}: {gap.why}" for gap in record.not_read)
    if not record.known and not without:
        raise Refused(
            f"no record of erasures can be read ({'; '.join(not_read)}): it is not known whether somebody was erased "
            "since this snapshot was taken",
            "to restore all the same: --without-erasure-record",
        )
    return () if record.known else not_read


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


def check_new(to: str, snapshot: str, manifest: Manifest, host: Host) -> None:
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
    if free is not None and free < manifest.size_bytes + SLACK_BYTES:
        no_room(to, free, manifest)


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
    owner = exchange.owner_of(target)
    if owner is None:
        owner = (folder_owner(target.parent) if os.geteuid() == 0 else None) or (os.geteuid(), os.getegid())
    published = False
    try:
        exchange.make_parents(target.parent, owner)
        with exchange.staging(staged) as there:
            try:
                if there:
                    exchange.empty_staging([staged])
                _stage(plan.snapshot, plan.manifest, staged, staged, say)
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
        plan.manifest,
        history=f"{plan.to}/{snapshot_core.HISTORY}",
        vectors=f"{plan.to}/{snapshot_core.VECTORS}",
        in_place=False,
        warnings=plan.warnings,
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
    settled, finished = _settle_first(targets, host, say)
    if finished is not None and _is_this(finished, plan, targets):
        finished = put_to_the_chain(finished, plan, install, host, say)
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
            check_room(targets, plan.manifest, host)
            _stage_beside(plan, targets, owners, say)
            done = _exchange(plan, install, targets, host, say, snapshot_core.name_of(now()), unseen)
        except BaseException as error:
            _give_up(folders)
            if isinstance(error, (OSError, sqlite3.Error)):
                raise Failed(
                    f"{words(error)}; nothing was changed", "the same command begins again"
                ) from None
            raise
    return replace(done, settled=settled, warnings=plan.warnings + done.warnings)


def _settle_first(
    targets: tuple[Target, Target], host: Host, say: Progress
) -> tuple[Interrupted | None, Restored | None]:
    """Settles what a restore that was cut off left, where there is something; staging folders that were made for
    that alone go again."""
    with ExitStack() as stack:
        folders, there = _open_staging(targets, owners_of(targets), stack)
        try:
            return settle(folders, there, host, say, stack)
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
    plan: RestorePlan, targets: Sequence[Target], owners: dict[str, tuple[int, int]], say: Progress
) -> None:
    """The copies of both halves in their staging folders, with the owners and modes of what they replace."""
    history, vectors = targets
    staged = [Path(t.staging) for t in targets]
    exchange.empty_staging(staged)
    _stage(plan.snapshot, plan.manifest, staged[0], staged[1], say)
    for target, name in ((history, snapshot_core.HISTORY), (vectors, snapshot_core.VECTORS)):
        old = Path(target.real) if target.exists else None
        mode = stat.S_IMODE(old.stat().st_mode) if old is not None and old.is_dir() else 0o700
        exchange.take_after(Path(target.staging) / name, old, owners[target.half], mode)
        files.sync_tree(Path(target.staging))


def _exchange(
    plan: RestorePlan,
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
            intent = _intent(plan, targets, date)
            with ExitStack() as stack:
                if targets[0].exists:
                    stack.enter_context(exchange.database_locked(Path(targets[0].real)))
                say("exchanging", None, None)
                try:
                    write_intent(intent)
                    exchange.forward(intent.pieces)
                    stack.close()
                    say("auditing the result", None, None)
                    wrong = differs(plan.manifest, intent.history, intent.vectors, say)
                    if wrong:
                        raise Failed(f"the restored pair is not the snapshot's ({wrong})")
                    intent = replace(intent, audited=True)
                    write_intent(intent)
                except BaseException as error:  # noqa: BLE001 - taken back whatever it is, and raised again
                    stack.close()
                    take_back(intent, error)
            done = finish(plan.manifest, intent, host)
            return put_to_the_chain(done, plan, install, host, say)
    except exchange.InUse as problem:
        in_use(problem, unseen)


def put_to_the_chain(
    done: Restored, plan: RestorePlan, install: Install, host: Host, say: Progress
) -> Restored:
    """Explains the restore to the chain of seals, where there is one: else the next audit would find both stores
    rolled back. What keeps it from that is a warning: both are restored all the same."""
    outcome = explain(
        install, host, "restore", f"snapshot {plan.manifest.name}", ledger=plan.ledger, progress=say
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


def _intent(plan: RestorePlan, targets: tuple[Target, Target], date: str) -> Intent:
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
        manifest=snapshot_core.manifest_text(plan.manifest),
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
