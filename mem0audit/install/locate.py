"""Which install is meant: every path with what decided it."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH110, PTH118

from __future__ import annotations

import os
from dataclasses import dataclass

from mem0audit.core.errors import UsageProblem
from mem0audit.core.model import Install, Origin
from mem0audit.core.server import Secret, parse_address
from mem0audit.core.words import shell_word
from mem0audit.install.config import (
    DEFAULT_COLLECTION,
    DEFAULT_PATH,
    Mem0Config,
    Settings,
    load_mem0_config,
    load_settings,
)
from mem0audit.install.host import Host

DEFAULT = "mem0's default"
MEM0_DIR = "environment MEM0_DIR"


@dataclass(frozen=True)
class Flags:
    """What the user said on the command line; None where nothing."""

    history: str | None = None
    qdrant_path: str | None = None
    qdrant_url: str | None = None
    collection: str | None = None
    config: str | None = None
    agent_python: str | None = None
    api_key_env: str | None = None
    nodes: tuple[str, ...] | None = None


def locate(flags: Flags, host: Host) -> Install:
    """The install, from flags, `--config`, mem0audit.toml, MEM0_DIR and mem0's defaults, in this order.

    Each value comes from the first of them that says it. `~` is expanded in flags and settings, not in
    mem0's dict and MEM0_DIR: mem0 takes those as they are. Relative paths are made absolute from the working
    directory (in mem0audit.toml from its own folder). Raises UsageProblem and CouldNotRead.
    """
    if flags.qdrant_path is not None and flags.qdrant_url is not None:
        raise UsageProblem("--qdrant-path and --qdrant-url are both given", "an install has one vector store")
    given_texts = [(name, value) for name, value in vars(flags).items() if name != "nodes"]
    for name, value in (*given_texts, *(("node", node) for node in flags.nodes or ())):
        if value is not None and (not value.strip() or "\0" in value):
            raise UsageProblem(f"--{name.replace('_', '-')} is empty or holds a NUL")
    settings = load_settings(host)
    agent_python = _typed(flags.agent_python, host) or settings.agent_python
    given = _config(flags.config, host, agent_python)
    settled = _config(settings.config, host, agent_python)
    configs = [(config, config.source) for config in (given, settled) if config is not None]
    mem0_dir = _mem0_dir(host)
    provider, vectors, server, says = _vectors(flags, given, settings, settled, host)
    key, key_from = _key(flags, settings, server, says, host)
    return Install(
        history=_history(flags, given, settings, settled, mem0_dir, host),
        vectors=vectors,
        collection=_collection(flags, given, settings, settled),
        mem0_dir=mem0_dir,
        provider=provider,
        server_url=server,
        server_key=key,
        server_key_from=key_from,
        nodes=_nodes(flags, settings, server, key is not None),
        embedder_dims=next((config.dims for config, _ in configs if config.dims is not None), None),
        on_disk=says.on_disk if says is not None else None,
        agent_python=agent_python,
        config_file=configs[0][1] if configs else None,
    )


def _config(name: str | None, host: Host, python: str | None) -> Mem0Config | None:
    if name is None:
        return None
    path = _typed(name, host)
    if ":" in name and not os.path.exists(path or name):
        return load_mem0_config(name, python, host.cwd)
    return load_mem0_config(path or name, python, host.cwd)


def _history(
    flags: Flags,
    given: Mem0Config | None,
    settings: Settings,
    settled: Mem0Config | None,
    mem0_dir: Origin,
    host: Host,
) -> Origin:
    if flags.history is not None:
        return Origin(_typed(flags.history, host) or "", "--history")
    if given is not None and given.history is not None:
        return Origin(_absolute(given.history, host), given.source)
    if settings.history is not None:
        return Origin(settings.history, _name(settings))
    if settled is not None and settled.history is not None:
        return Origin(_absolute(settled.history, host), settled.source)
    return Origin(os.path.join(mem0_dir.value, "history.db"), mem0_dir.decided_by)


def _vectors(
    flags: Flags, given: Mem0Config | None, settings: Settings, settled: Mem0Config | None, host: Host
) -> tuple[str, Origin | None, Origin | None, Mem0Config | None]:
    """Provider, folder, server, and the config that speaks of this vector store."""
    spoken = given or settled
    if flags.qdrant_path is not None:
        return "qdrant", Origin(_typed(flags.qdrant_path, host) or "", "--qdrant-path"), None, spoken
    if flags.qdrant_url is not None:
        return "qdrant", None, _server(flags.qdrant_url, "--qdrant-url", flags, settings), spoken
    if given is not None and given.says_vectors:
        return _from_config(given, host)
    if settings.qdrant_path is not None:
        return "qdrant", Origin(settings.qdrant_path, _name(settings)), None, spoken
    if settings.qdrant_url is not None:
        return "qdrant", None, _server(settings.qdrant_url, _name(settings), flags, settings), spoken
    if settled is not None and settled.says_vectors:
        return _from_config(settled, host)
    return "qdrant", Origin(DEFAULT_PATH, DEFAULT), None, spoken


def _from_config(
    config: Mem0Config, host: Host
) -> tuple[str, Origin | None, Origin | None, Mem0Config | None]:
    if config.provider != "qdrant":
        return config.provider, None, None, config
    if config.url is not None:
        return "qdrant", None, Origin(config.url, config.source), config
    return "qdrant", Origin(_absolute(config.path or DEFAULT_PATH, host), config.source), None, config


def _nodes(flags: Flags, settings: Settings, server: Origin | None, with_key: bool) -> tuple[str, ...]:
    """The other nodes of the server's cluster, each once. Raises UsageProblem where there is no server to be of."""
    if flags.nodes and server is None:
        raise UsageProblem(
            "--node: there is no server", "name one of the nodes with --qdrant-url or --config, the others so"
        )
    named = flags.nodes or settings.qdrant_nodes
    if server is None or not named:
        return ()
    said_by = "--node" if flags.nodes else _name(settings)
    try:
        found = [parse_address(url, with_key=with_key).url for url in named]
    except UsageProblem as problem:
        raise UsageProblem(f"{said_by}: {problem.message}", problem.hint) from None
    first = server.value
    if not flags.nodes and (flags.qdrant_url is not None or flags.config is not None):
        # those in the settings are of the settings' server: another one's key is nothing to them
        own = None if settings.qdrant_url is None else _server(settings.qdrant_url, said_by, flags, settings)
        if first not in (*found, None if own is None else own.value):
            return ()
    return tuple(dict.fromkeys(url for url in found if url != first))


def _server(url: str, said_by: str, flags: Flags, settings: Settings) -> Origin:
    with_key = bool(flags.api_key_env or settings.api_key_env)
    try:
        return Origin(parse_address(url, with_key=with_key).url, said_by)
    except UsageProblem as problem:
        raise UsageProblem(f"{said_by}: {problem.message}", problem.hint) from None


def _key(
    flags: Flags, settings: Settings, server: Origin | None, says: Mem0Config | None, host: Host
) -> tuple[Secret | None, str | None]:
    """The server's key and where it comes from; (None, None) where none is named. It is never in a flag or in our own
    settings, which other people's programs show: the name of a variable is.

    Raises UsageProblem where the variable is not set, or others can read the file that holds the key.
    """
    if server is None:
        if flags.api_key_env is not None:
            raise UsageProblem("--api-key-env: there is no server", "name it with --qdrant-url or --config")
        return None, None
    named = [(flags.api_key_env, "--api-key-env")]
    # A key goes to the server it was meant for, and to no other.
    from_config = says is not None and says.url == server.value and says.key is not None
    config_first = from_config and says is not None and server.decided_by == says.source
    settings_url = settings.qdrant_url
    theirs = settings_url is None or _server(settings_url, "", flags, settings).value == server.value
    if theirs and not config_first:
        named.append((settings.api_key_env, _name(settings)))
    for variable, said_by in named:
        if variable is None:
            continue
        text = host.environ.get(variable, "").strip()
        if not text:
            raise UsageProblem(f"{said_by}: the variable {variable} is not set, or empty")
        return Secret(text), f"${variable}"
    if not from_config or says is None:
        return None, None
    if says.key_open is not None:
        raise UsageProblem(
            f"{says.source}: holds an API key and others can read it ({says.key_open})",
            f"chmod 600 {shell_word(says.source)}, or name a variable that holds the key with --api-key-env",
        )
    return says.key, says.source


def _collection(
    flags: Flags, given: Mem0Config | None, settings: Settings, settled: Mem0Config | None
) -> Origin:
    if flags.collection is not None:
        return Origin(flags.collection, "--collection")
    if given is not None and given.collection is not None:
        return Origin(given.collection, given.source)
    if settings.collection is not None:
        return Origin(settings.collection, _name(settings))
    if settled is not None and settled.collection is not None:
        return Origin(settled.collection, settled.source)
    return Origin(DEFAULT_COLLECTION, DEFAULT)


def _mem0_dir(host: Host) -> Origin:
    # mem0/configs/base.py: os.environ.get("MEM0_DIR") or ~/.mem0; the variable is not expanded.
    said = host.environ.get("MEM0_DIR")
    if said:
        return Origin(_absolute(said, host), MEM0_DIR)
    return Origin(os.path.join(host.home, ".mem0"), DEFAULT)


def _name(settings: Settings) -> str:
    return settings.file or "mem0audit.toml"


def _typed(value: str | None, host: Host) -> str | None:
    """A path as a user types it: `~` and `~/…` mean the home, also in `--flag=~/x`, which a shell leaves."""
    if value is None:
        return None
    if value == "~" or value.startswith("~/"):
        value = host.home.rstrip("/") + value[1:]
    return _absolute(value, host)


def _absolute(value: str, host: Host) -> str:
    # Not normalised over "..": behind a symlink that would be another folder.
    if value.startswith("/"):
        return value
    while value.startswith("./"):
        value = value[2:].lstrip("/")
    return os.path.join(host.cwd, value) if value not in ("", ".") else host.cwd
