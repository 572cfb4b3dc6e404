"""Which install is meant: every path with what decided it."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH110, PTH118

from __future__ import annotations

import os
from dataclasses import dataclass

from mem0audit.core.errors import UsageProblem
from mem0audit.core.model import Install, Origin
from mem0audit.install.config import (
    DEFAULT_COLLECTION,
    DEFAULT_PATH,
    Mem0Config,
    Settings,
    load_mem0_config,
    load_settings,
    without_credentials,
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


def locate(flags: Flags, host: Host) -> Install:
    """The install, from flags, `--config`, mem0audit.toml, MEM0_DIR and mem0's defaults, in this order.

    Each value comes from the first of them that says it. `~` is expanded in flags and settings, not in
    mem0's dict and MEM0_DIR: mem0 takes those as they are. Relative paths are made absolute from the working
    directory (in mem0audit.toml from its own folder). Raises UsageProblem and CouldNotRead.
    """
    if flags.qdrant_path is not None and flags.qdrant_url is not None:
        raise UsageProblem("--qdrant-path and --qdrant-url are both given", "an install has one vector store")
    for name, value in vars(flags).items():
        if value is not None and (not value.strip() or "\0" in value):
            raise UsageProblem(f"--{name.replace('_', '-')} is empty or holds a NUL")
    settings = load_settings(host)
    agent_python = _typed(flags.agent_python, host) or settings.agent_python
    given = _config(flags.config, host, agent_python)
    settled = _config(settings.config, host, agent_python)
    configs = [(config, config.source) for config in (given, settled) if config is not None]
    mem0_dir = _mem0_dir(host)
    provider, vectors, server, says = _vectors(flags, given, settings, settled, host)
    return Install(
        history=_history(flags, given, settings, settled, mem0_dir, host),
        vectors=vectors,
        collection=_collection(flags, given, settings, settled),
        mem0_dir=mem0_dir,
        provider=provider,
        server_url=server,
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
        return "qdrant", None, Origin(without_credentials(flags.qdrant_url), "--qdrant-url"), spoken
    if given is not None and given.says_vectors:
        return _from_config(given, host)
    if settings.qdrant_path is not None:
        return "qdrant", Origin(settings.qdrant_path, _name(settings)), None, spoken
    if settings.qdrant_url is not None:
        return "qdrant", None, Origin(without_credentials(settings.qdrant_url), _name(settings)), spoken
    if settled is not None and settled.says_vectors:
        return _from_config(settled, host)
    return "qdrant", Origin(DEFAULT_PATH, DEFAULT), None, spoken


def _from_config(
    config: Mem0Config, host: Host
) -> tuple[str, Origin | None, Origin | None, Mem0Config | None]:
    if config.provider != "qdrant":
        return config.provider, None, None, config
    if config.url is not None:
        return "qdrant", None, Origin(without_credentials(config.url), config.source), config
    return "qdrant", Origin(_absolute(config.path or DEFAULT_PATH, host), config.source), None, config


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
