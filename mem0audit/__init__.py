"""mem0audit: reads both stores of a mem0 install side by side and keeps them safe.

import mem0audit
report = mem0audit.audit(history="/srv/agent/history.db", qdrant_path="/srv/agent/qdrant")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mem0audit.core.model import Install, Report

__version__ = "0.1.0"
__all__ = ["audit", "erase", "live", "locate", "prune"]


def locate(
    *,
    history: str | None = None,
    qdrant_path: str | None = None,
    qdrant_url: str | None = None,
    api_key_env: str | None = None,
    collection: str | None = None,
    config: str | None = None,
    agent_python: str | None = None,
    nodes: Sequence[str] = (),
) -> Install:
    """The install that these paths mean, each value with what decided it; the rest as the command finds it:
    mem0audit.toml, MEM0_DIR, mem0's defaults.

    `config` is a YAML, JSON or TOML file with the dict given to `Memory.from_config`, or `module:NAME`; `api_key_env`
    the name of the variable that holds the key of the server at `qdrant_url`; `nodes` the other nodes of its cluster.
    Nothing is opened. Raises `mem0audit.core.errors.UsageProblem` or `CouldNotRead` for a bad configuration.
    """
    from mem0audit.install.host import this_host
    from mem0audit.install.locate import Flags
    from mem0audit.install.locate import locate as find

    flags = Flags(
        history=history,
        qdrant_path=qdrant_path,
        qdrant_url=qdrant_url,
        api_key_env=api_key_env,
        collection=collection,
        config=config,
        agent_python=agent_python,
        nodes=tuple(nodes),
    )
    return find(flags, this_host())


def audit(
    install: Install | None = None,
    *,
    history: str | None = None,
    qdrant_path: str | None = None,
    qdrant_url: str | None = None,
    api_key_env: str | None = None,
    collection: str | None = None,
    config: str | None = None,
    agent_python: str | None = None,
    nodes: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    ledger: bool = True,
    vectors: bool = False,
    consistent: bool = False,
) -> Report:
    """Audit an install, beside a running agent or without: read-only, as the command `mem0audit audit` does.

    The install is `install`, or what `locate` makes of the other paths. `select` and `ignore` are rule codes
    or beginnings of codes. With `ledger` both stores are compared with the last seal, and whose each memory is goes
    into mem0audit's own file under `~/.local/state`; without, nothing is written anywhere. Of a server too, with
    `vectors` the vectors are looked at, and with `consistent` each collection is read as of one instant (it needs
    `mem0audit[edge]`, and a key that may manage). The report's findings hold no memory text. Raises what `locate`
    raises, UsageProblem for `consistent` without that package, and nothing for what cannot be read:
    `report.not_checked` names it.
    """
    from mem0audit.core.server import ServerRead
    from mem0audit.install.config import load_settings
    from mem0audit.install.host import this_host
    from mem0audit.operations.audit import audit as run
    from mem0audit.operations.interrupted import interrupted
    from mem0audit.operations.known import known_snapshots
    from mem0audit.operations.leftmoves import left_moves

    if install is None:
        install = locate(
            history=history,
            qdrant_path=qdrant_path,
            qdrant_url=qdrant_url,
            api_key_env=api_key_env,
            collection=collection,
            config=config,
            agent_python=agent_python,
            nodes=nodes,
        )
    host = this_host()
    return run(
        install,
        host,
        select=select,
        ignore=ignore,
        snapshots=known_snapshots(install, host, load_settings(host), ledger=ledger),
        interrupted=interrupted(install, host),
        left_moves=left_moves(install, host, ledger=ledger),
        ledger=ledger,
        how=ServerRead(vectors=vectors, instant=consistent),
    )


def erase(
    memory: Any,
    *,
    user_id: str | int | None = None,
    agent_id: str | int | None = None,
    run_id: str | int | None = None,
    memory_ids: Sequence[str] = (),
    only_this_store: bool = False,
    receipt: str | None = None,
) -> Any:
    """Delete a user's, agent's or run's memories inside the running agent, as the command `mem0audit delete` does with
    the agent stopped: through the agent's own `Memory`, by id, then what its entities link of them.

    `memory` is the agent's open `Memory`, whose other threads go on meanwhile; nothing of it is swapped, and no model
    is asked. For an `AsyncMemory`, await the result. Several ids together mean memories that have all of them; `*` and
    blank ones are refused; `memory_ids` names single memories instead. The result (`core.erase.Erased`) counts what
    went and what can still be read; `receipt` is a file for a receipt. Raises `core.errors.Refused` where it may not,
    `CouldNotRead` where there is nothing of it, `Failed` where it was cut off: the same call finishes it.
    """
    from mem0audit.core.errors import UsageProblem
    from mem0audit.core.scopes import scope_of
    from mem0audit.install.config import load_settings
    from mem0audit.install.host import this_host
    from mem0audit.operations.erase import erase_inside
    from mem0audit.stores.mem0live import is_async

    scope = scope_of(user_id, agent_id, run_id)
    if (scope is None) == (not memory_ids):
        raise UsageProblem("name a user, an agent or a run, or else single memories")

    def run() -> Any:
        host = this_host()
        return erase_inside(
            memory,
            host,
            scope=scope,
            memory_ids=memory_ids,
            only_this_store=only_this_store,
            settings=load_settings(host),
            receipt=receipt,
        )

    if is_async(memory):
        import asyncio

        return asyncio.to_thread(run)
    return run()


def live(
    results: Any,
    memory: Any = None,
    *,
    history: str | None = None,
    qdrant_path: str | None = None,
    qdrant_url: str | None = None,
    config: str | None = None,
) -> Any:
    """What mem0 found, without what the ledger calls expired or superseded: `live(memory.search(…), memory)`.

    `results` is what `search` or `get_all` gave (a dict with "results", or a list), and comes back in the same shape;
    each memory has a `confirmed` more, the day it was last found true ("2026-05-02", UTC) or None. That each was used
    is recorded in the ledger, in batches: a kill loses the last minute. mem0 itself still retrieves what is superseded.

    The ledger is found by `memory`, the agent's `Memory` or `AsyncMemory`, else by the paths, else as the command finds
    it; it is the one of the user that this runs as. No store is opened; one call takes about a millisecond. Where there
    is no ledger, or it cannot be read, nothing is left out, a warning says so once, and nothing is raised.
    """
    from mem0audit.operations.live import live as run

    return run(
        results, memory, history=history, qdrant_path=qdrant_path, qdrant_url=qdrant_url, config=config
    )


def prune(memory: Any, *, older_than: str | None = None, unused: bool = False, to: str | None = None) -> Any:
    """Remove expired and superseded memories inside the running agent, as the command `mem0audit prune` does with the
    agent stopped: a snapshot of both stores first, then through the agent's own `Memory`, by id, each outdated one
    before what replaced it, with what its entities link of them.

    `memory` is the agent's open `Memory`, whose other threads go on meanwhile; nothing of it is swapped, and no model
    is asked. For an `AsyncMemory`, await the result. `older_than` is how long ago a memory must have expired ("30d",
    "8w"); with `unused` those go too that were neither added nor used for six months; `to` the folder for snapshots,
    `snapshot_dir` of mem0audit.toml where it is None. The result (`core.prune.Pruned`) has what was planned and what
    was done; a memory whose date was moved meanwhile, or that was used, stays. Raises `core.errors.UsageProblem` where
    no folder is named or `memory` is none, `Refused` where it may not, `CouldNotRead` where a store does not read
    whole, `Failed` where it was cut off: the same call goes on.
    """
    from mem0audit.core.errors import UsageProblem
    from mem0audit.core.retention import length
    from mem0audit.install.config import load_settings
    from mem0audit.install.host import this_host
    from mem0audit.operations.prune import prune_inside
    from mem0audit.stores.mem0live import is_async

    try:
        seconds = 0.0 if older_than is None else length(older_than)
    except ValueError:
        raise UsageProblem("older_than: no length of time", 'a number and h, d or w, as in "30d"') from None

    def run() -> Any:
        host = this_host()
        folder = to or load_settings(host).snapshot_dir
        return prune_inside(memory, host, older_than_s=seconds, unused=unused, folder=folder)

    if is_async(memory):
        import asyncio

        return asyncio.to_thread(run)
    return run()
