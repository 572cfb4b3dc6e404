"""mem0's own configuration as the user has it, and our settings file."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH110, PTH116, PTH118, PTH119, PTH120, PTH122, PTH123

from __future__ import annotations

import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mem0audit.core.errors import CouldNotRead, UsageProblem
from mem0audit.core.retention import length
from mem0audit.core.server import Secret, parse_address
from mem0audit.install.host import Host, this_host

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

DEFAULT_PATH = "/tmp/qdrant"  # noqa: S108 (mem0's own default, the reason for half of the L rules)
DEFAULT_COLLECTION = "mem0"
DEFAULT_DIMS = 1536

PROVIDERS = frozenset(
    [
        "qdrant",
        "chroma",
        "pgvector",
        "pinecone",
        "mongodb",
        "milvus",
        "baidu",
        "cassandra",
        "neptune",
        "upstash_vector",
        "azure_ai_search",
        "azure_mysql",
        "redis",
        "valkey",
        "databricks",
        "elasticsearch",
        "vertex_ai_vector_search",
        "opensearch",
        "supabase",
        "weaviate",
        "faiss",
        "langchain",
        "s3_vectors",
        "turbopuffer",
        "oracledb",
    ]
)
"""The vector stores of mem0 2.2.1 (mem0/vector_stores/configs.py). It refuses any other."""

_TOP_KEYS = frozenset(
    [
        "vector_store",
        "llm",
        "embedder",
        "history_db_path",
        "reranker",
        "version",
        "custom_instructions",
        "graph_store",
        "custom_prompt",
        "custom_fact_extraction_prompt",
        "custom_update_memory_prompt",
    ]
)
_QDRANT_KEYS = frozenset(
    [
        "collection_name",
        "embedding_model_dims",
        "client",
        "host",
        "port",
        "path",
        "url",
        "api_key",
        "https",
        "on_disk",
    ]
)
_SECRET = re.compile(
    r"(api_?key|token(?!s)|secret|passw(or)?d|credential|private_?key|access_?key|connection_?string|dsn|auth)",
    re.I,
)
_IMPORT_TIMEOUT = 60.0
MOST_BYTES = 512 << 10
MOST_VALUES = 100_000
"""More than any configuration has; YAML of this size is read in some seconds."""


@dataclass(frozen=True)
class Mem0Config:
    """The dict given to `Memory.from_config`, and what mem0 makes of it.

    `history`, `path` and `collection` are None where the dict does not say them (mem0's default then
    applies). `url` is the server's address where mem0 would talk to one, else None; `key` the API key for it, and
    `key_open` says why others can read it in its file, None where they cannot. Values are as written: mem0 expands
    neither `~` nor `$VARIABLES` in them.
    """

    source: str
    raw: Mapping[str, Any]
    provider: str = "qdrant"
    says_vectors: bool = False
    history: str | None = None
    path: str | None = None
    url: str | None = None
    collection: str | None = None
    dims: int | None = None
    on_disk: bool | None = None
    key: Secret | None = None
    key_open: str | None = None


@dataclass(frozen=True)
class Settings:
    """mem0audit.toml. `file` is where it was found, None where there is none; paths are absolute."""

    file: str | None = None
    history: str | None = None
    qdrant_path: str | None = None
    qdrant_url: str | None = None
    qdrant_nodes: tuple[str, ...] = ()
    api_key_env: str | None = None
    collection: str | None = None
    config: str | None = None
    agent_python: str | None = None
    snapshot_dir: str | None = None
    snapshot_max_age: str | None = None
    fail_on: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """What `config validate` found. `kind` is "mem0audit settings" or "mem0 config"; `problems` would stop
    mem0 or us, `notes` are read but probably not meant."""

    path: str
    kind: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --- mem0's dict ---------------------------------------------------------------------------------


def load_mem0_config(path: str, python: str | None = None, cwd: str | None = None) -> Mem0Config:
    """The configuration in a YAML, JSON or TOML file, or in `module:NAME`.

    A file is read by its extension, another one is tried as JSON, TOML and YAML. `module:NAME` runs
    code: it is imported by `python` (ours if None) in a process of its own, in `cwd`. Raises UsageProblem, one
    line, when it is missing, not a mapping, or something mem0 itself would refuse.
    """
    if not os.path.exists(path) and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", path):
        return mem0_config_from(_imported(path, python or sys.executable, cwd), path)
    config = mem0_config_from(_read_mapping(path), path)
    return config if config.key is None else replace(config, key_open=_open_to_others(path))


def _open_to_others(path: str) -> str | None:
    """Why others can read a file, by its mode; None where they cannot."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None  # it was read, and has gone since
    return f"mode {mode:04o}" if mode & (stat.S_IRGRP | stat.S_IROTH) else None


def mem0_config_from(raw: Mapping[str, Any], source: str) -> Mem0Config:
    """What mem0 makes of a config dict (mem0/configs/base.py, mem0/vector_stores/qdrant.py of 2.2.1).

    A server is used as soon as `url`, `api_key`, `https`, or both `host` and `port` are set; then `path`
    is ignored. Raises UsageProblem for what mem0 refuses.
    """
    history = _text(raw, "history_db_path", source)
    store = _mapping(raw, "vector_store", source)
    provider = _text(store, "provider", source, "vector_store.provider") or "qdrant"
    values = _mapping(store, "config", source, "vector_store.config")
    embedder = _mapping(_mapping(raw, "embedder", source), "config", source, "embedder.config")
    dims = _number(embedder, "embedding_dims", source, "embedder.config.embedding_dims")
    if dims is None:
        dims = _number(values, "embedding_model_dims", source, "vector_store.config.embedding_model_dims")
    if history is not None and history in ("", ":memory:"):
        raise UsageProblem(
            f"{source}: history_db_path is {history!r}: mem0 then keeps its log in memory only",
            "there is no log to read; name a file with --history",
        )
    collection = _text(values, "collection_name", source, "vector_store.config.collection_name")
    if provider != "qdrant":
        return Mem0Config(source, raw, provider, True, history, collection=collection, dims=dims)
    if values.get("client") is not None:
        raise UsageProblem(
            f"{source}: vector_store.config.client is a client object, which does not say where it stores",
            "name its folder or server with --qdrant-path or --qdrant-url",
        )
    path = _text(values, "path", source, "vector_store.config.path")
    key = values.get("api_key")
    if key is not None and not isinstance(key, str):
        raise UsageProblem(f"{source}: vector_store.config.api_key is not a text")
    url = _server_url(values, source)
    if "path" in values and not path and url is None:
        raise UsageProblem(
            f"{source}: vector_store.config.path is empty: mem0 refuses that",
            "name the folder, or the server's url, in vector_store.config",
        )
    on_disk = values.get("on_disk")
    return Mem0Config(
        source=source,
        raw=raw,
        provider=provider,
        says_vectors=bool(path) or url is not None,
        history=history,
        path=path if url is None else None,
        url=url,
        collection=collection,
        dims=dims,
        on_disk=on_disk if isinstance(on_disk, bool) else None,
        key=Secret(key) if key and url is not None else None,
    )


def _server_url(values: Mapping[str, Any], source: str) -> str | None:
    """The address mem0 would talk to, with its port (mem0/vector_stores/qdrant.py, qdrant_client/qdrant_remote.py);
    None where it would open a folder."""
    url = _text(values, "url", source, "vector_store.config.url")
    host = _text(values, "host", source, "vector_store.config.host")
    port, with_key = values.get("port"), bool(values.get("api_key"))
    secure = None if values.get("https") is None else bool(values["https"])
    if url and host and port:
        raise UsageProblem(f"{source}: vector_store.config has url and host: qdrant-client takes one of them")
    if not url:
        if host and "://" in host:
            raise UsageProblem(
                f"{source}: vector_store.config.host holds a scheme, which qdrant-client refuses",
                "give it as vector_store.config.url",
            )
        if not (host and port) and not with_key and secure is None:
            return None
        # no host means localhost, and no port 6333
        bare = f"[{host}]" if host and host.count(":") > 1 and not host.startswith("[") else host
        url = f"{bare}:{port}" if host and port else "localhost"
    try:
        return parse_address(url, https=secure, with_key=with_key).url
    except UsageProblem as problem:
        raise UsageProblem(f"{source}: vector_store.config: {problem.message}", problem.hint) from None


def shown(config: Mem0Config) -> dict[str, Any]:
    """The config dict for printing: keys, tokens, passwords and credentials in addresses are masked."""
    masked = _masked(config.raw)
    return masked if isinstance(masked, dict) else {}


def without_secrets(lines: Sequence[str], raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Lines of a configuration file for printing: what its keys, tokens and passwords are is masked in them."""
    secrets: set[str] = set()

    def collect(value: Any, key: str) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                collect(inner, key if _SECRET.search(key) else str(name))
        elif isinstance(value, (list, tuple)):
            for inner in value:
                collect(inner, key)
        elif isinstance(value, str) and _SECRET.search(key) and len(value) > 3:
            secrets.add(value)

    collect(raw, "")
    out = []
    for line in lines:
        for secret in sorted(secrets, key=len, reverse=True):
            line = line.replace(secret, "***").replace(json.dumps(secret)[1:-1], "***")
        out.append(str(_masked(line)))
    return tuple(out)


def _masked(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        # What lies below a secret's name is secret as well.
        return {
            str(name): _masked(inner, key if _SECRET.search(key) else str(name))
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(inner, key) for inner in value]
    if _SECRET.search(key) and value not in (None, "", True, False):
        return "***"
    if isinstance(value, str):
        value = re.sub(r"(\w+://)[^/@\s]+@", r"\1***@", value)
        return re.sub(r"([?&][\w-]*(?:key|token|secret|password)[\w-]*=)[^&\s]+", r"\1***", value, flags=re.I)
    return value if isinstance(value, (int, float, bool, type(None))) else str(type(value).__name__)


# --- our settings --------------------------------------------------------------------------------

EXAMPLE = """\
# mem0audit.toml: looked for in the working directory, then in $XDG_CONFIG_HOME/mem0audit/
# (~/.config/mem0audit/), then in /etc/mem0audit/. The first one found counts, flags come before it.
# Relative paths are relative to this file; ~ is your home.

# mem0's change log. Default: $MEM0_DIR/history.db, else ~/.mem0/history.db
#history = "~/.mem0/history.db"

# The folder of the embedded vector store. Default: mem0's own, /tmp/qdrant
#qdrant_path = "/srv/agent/qdrant"

# Or the address of a Qdrant server, instead of qdrant_path.
#qdrant_url = "http://localhost:6333"

# The other nodes of its cluster: a snapshot takes each shard from a node that has it.
#qdrant_nodes = ["http://node2:6333", "http://node3:6333"]

# The variable that holds the server's API key; the key itself does not belong in here.
#api_key_env = "QDRANT_API_KEY"

# The collection. Default: mem0's own, "mem0"
#collection = "mem0"

# The configuration that the agent gives to Memory.from_config, as a YAML, JSON or TOML
# file, in place of the four above.
#config = "/srv/agent/mem0.yaml"

# The Python that the agent runs with, where it cannot be found from the running process.
#agent_python = "/srv/agent/venv/bin/python"

# Where `snapshot` puts snapshots and looks for them. On another disk than the stores if you can.
#snapshot_dir = "/srv/backup/mem0"

# How old the newest snapshot may be before an audit says so: h, d or w. Default: 7d
#snapshot_max_age = "2d"

# From which severity on the exit code is 1: critical, high, medium, low or info. Default: medium
#fail_on = "medium"

# Only these rules, or none of these: a code, or the beginning of one.
#select = ["L", "D30"]
#ignore = ["L105"]
"""

_TEXT_KEYS = (
    "history",
    "qdrant_path",
    "qdrant_url",
    "api_key_env",
    "collection",
    "config",
    "agent_python",
    "snapshot_dir",
    "snapshot_max_age",
    "fail_on",
)
_LIST_KEYS = ("select", "ignore", "qdrant_nodes")
_PATH_KEYS = ("history", "qdrant_path", "agent_python", "snapshot_dir")
SEVERITIES = ("critical", "high", "medium", "low", "info")


def settings_files(host: Host) -> tuple[str, ...]:
    """Where mem0audit.toml is looked for, in order."""
    base = host.environ.get("XDG_CONFIG_HOME") or ""
    if not base.startswith("/"):  # the XDG rules: a relative one is to be ignored
        base = f"{host.home.rstrip('/')}/.config"
    return (
        f"{host.cwd.rstrip('/')}/mem0audit.toml",
        f"{base.rstrip('/')}/mem0audit/mem0audit.toml",
        "/etc/mem0audit/mem0audit.toml",
    )


def load_settings(host: Host) -> Settings:
    """The first mem0audit.toml there is, checked; without one, empty settings.

    Raises UsageProblem naming file, key and value; CouldNotRead where the file may not be read.
    """
    for file in settings_files(host):
        if os.path.lexists(host.at(file)):
            return _settings(_read_mapping(host.at(file), "toml"), file, host)
    return Settings()


def _settings(raw: Mapping[str, Any], file: str, host: Host) -> Settings:
    known = _TEXT_KEYS + _LIST_KEYS
    for key in raw:
        if key not in known:
            raise UsageProblem(f"{file}: unknown key {key!r}", _did_you_mean(key, known))
    texts: dict[str, str] = {}
    for key in _TEXT_KEYS:
        if key not in raw:
            continue
        value = raw[key]
        if not isinstance(value, str) or not value.strip():
            raise UsageProblem(f"{file}: {key} = {value!r} is not a text", f'for example {key} = "…"')
        if not _is_writable(value):
            raise UsageProblem(f"{file}: {key} holds a NUL")
        texts[key] = _from_settings(value, file, host) if key in _PATH_KEYS else value
    if "config" in texts and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", texts["config"]):
        texts["config"] = _from_settings(texts["config"], file, host)
    if texts.get("fail_on", "medium") not in SEVERITIES:
        raise UsageProblem(
            f"{file}: fail_on = {texts['fail_on']!r} is not a severity", "one of " + ", ".join(SEVERITIES)
        )
    try:
        length(texts.get("snapshot_max_age", "1d"))
    except ValueError:
        value = texts["snapshot_max_age"]
        raise UsageProblem(
            f"{file}: snapshot_max_age = {value!r} is no length of time",
            "a number and h, d or w, as in 12h, 30d, 8w",
        ) from None
    if "qdrant_path" in texts and "qdrant_url" in texts:
        raise UsageProblem(f"{file}: qdrant_path and qdrant_url are both set", "keep the one that is used")
    lists: dict[str, tuple[str, ...]] = {}
    for key in _LIST_KEYS:
        value = raw.get(key, [])
        if key == "qdrant_nodes":
            if not isinstance(value, list) or not all(isinstance(v, str) and _is_address(v) for v in value):
                raise UsageProblem(
                    f"{file}: {key} is not a list of addresses", f'for example {key} = ["http://node2:6333"]'
                )
            lists[key] = tuple(value)
            continue
        good = isinstance(value, list) and all(
            isinstance(v, str) and re.fullmatch(r"[A-Z]\d{0,3}", v) for v in value
        )
        if not good:
            raise UsageProblem(
                f"{file}: {key} = {value!r} is not a list of rule codes", f'for example {key} = ["L", "D301"]'
            )
        lists[key] = tuple(value)
    return Settings(file=file, **texts, **lists)  # type: ignore[arg-type]


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except UsageProblem:
        return False
    return _is_writable(text)


def _from_settings(value: str, file: str, host: Host) -> str:
    if value == "~" or value.startswith("~/"):
        value = host.home.rstrip("/") + value[1:]
    return os.path.normpath(os.path.join(os.path.dirname(file), value))


def validate(path: str, host: Host | None = None) -> Validation:
    """Checks a settings file (named mem0audit.toml) or a mem0 config. Never raises for what is in it."""
    host = host or this_host()
    if os.path.basename(path) == "mem0audit.toml":
        try:
            absolute = os.path.join(host.cwd, path)
            _settings(_read_mapping(host.at(absolute), "toml"), absolute, host)
        except (UsageProblem, CouldNotRead) as problem:
            return Validation(path, "mem0audit settings", (_one_line(problem),))
        return Validation(path, "mem0audit settings")
    try:
        config = load_mem0_config(path, cwd=host.cwd)
    except (UsageProblem, CouldNotRead) as problem:
        return Validation(path, "mem0 config", (_one_line(problem),))
    problems, notes = _judged(config)
    return Validation(path, "mem0 config", problems, notes)


def _judged(config: Mem0Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    problems: list[str] = []
    notes: list[str] = []
    notes += [
        f"mem0 ignores the key {key!r}{_meant(key, _TOP_KEYS)}" for key in config.raw if key not in _TOP_KEYS
    ]
    if config.provider not in PROVIDERS:
        problems.append(f"mem0 knows no vector store {config.provider!r}{_meant(config.provider, PROVIDERS)}")
    values = (config.raw.get("vector_store") or {}).get("config") or {}
    if config.provider == "qdrant":
        problems += [
            f"mem0 refuses vector_store.config.{key}{_meant(key, _QDRANT_KEYS)}"
            for key in values
            if key not in _QDRANT_KEYS
        ]
        if config.url is None and config.path is None:
            notes.append(f"no path in vector_store.config: mem0 uses {DEFAULT_PATH}")
        if config.url is not None and values.get("path"):
            notes.append(f"vector_store.config.path is ignored: mem0 uses the server {config.url}")
        if values.get("host") and not values.get("port") and config.url is None:
            notes.append("vector_store.config.host without port is ignored: mem0 uses the folder")
    for key, value in (("history_db_path", config.history), ("vector_store.config.path", config.path)):
        if value and value.startswith("~"):
            problems.append(f"{key} = {value!r}: mem0 does not expand ~, it looks for a folder of that name")
        elif value and re.search(r"\$\w|\$\{", value):
            problems.append(f"{key} = {value!r}: mem0 does not expand variables")
        elif value and not value.startswith("/"):
            notes.append(f"{key} = {value!r} is relative: it depends on where the agent is started")
    return tuple(problems), tuple(notes)


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConfigText:
    """A configuration file: its bytes, their text (without a byte order mark), what it is ("yaml", "json", "toml")
    and what it says."""

    data: bytes
    text: str
    kind: str
    raw: dict[str, Any]


def _read_mapping(path: str, only: str | None = None) -> dict[str, Any]:
    return read_config_text(path, only).raw


def read_config_text(path: str, only: str | None = None) -> ConfigText:
    """Reads a configuration file by its extension (or as `only`); another one is tried as JSON, TOML and YAML.

    Raises UsageProblem, one line, for what is no such file; CouldNotRead where it may not be read.
    """
    try:
        # Not to wait for the other end of a pipe that nobody writes to; `<(command)` is one under /dev/fd.
        if stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith(("/dev/", "/proc/")):
            raise UsageProblem(f"{path} is a pipe, not a configuration file")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageProblem(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageProblem(f"{path} is a folder, not a configuration file") from None
    except OSError as error:
        raise CouldNotRead(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    if len(data) > MOST_BYTES:
        raise UsageProblem(f"{path}: larger than {MOST_BYTES >> 10} kB, not a configuration file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{path}: not UTF-8 at byte {error.start}") from None
    extension = only or os.path.splitext(path)[1].lower().lstrip(".")
    value, problems = None, []
    for kind in {"yml": ("yaml",), "yaml": ("yaml",), "json": ("json",), "toml": ("toml",)}.get(
        extension, ("json", "toml", "yaml")
    ):
        try:
            value = parsed(text, kind)
        except ValueError as error:
            problems.append(f"not {kind.upper()}: {error}")
            continue
        if isinstance(value, dict):
            if not _is_small(value):
                raise UsageProblem(f"{path}: unfolds without end, not a configuration file")
            return ConfigText(data, text, kind, value)
        problems.append(f"as {kind.upper()} it holds no keys and values")
    raise UsageProblem(f"{path}: " + "; ".join(problems))


def _is_small(value: Any) -> bool:
    """Whether it has few enough values: YAML's aliases can make billions of a line, or a value hold itself."""
    todo, count = [value], 0
    while todo:
        count += 1
        if count > MOST_VALUES:
            return False
        inner = todo.pop()
        if isinstance(inner, dict):
            todo += inner.values()
        elif isinstance(inner, (list, tuple, set)):
            todo += inner
    return True


def parsed(text: str, kind: str) -> Any:
    """What a text of this kind says. Raises ValueError with a place and without the text around it (which may hold an
    API key)."""
    if kind == "json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{error.msg} at line {error.lineno}") from None
        except RecursionError:
            raise ValueError("nested too deeply") from None
    if kind == "toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(str(error)) from None
        except RecursionError:
            raise ValueError("nested too deeply") from None
    import yaml  # 15 ms that most audits do not need

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "cannot be parsed"
        raise ValueError(f"{what} at line {mark.line + 1}" if mark else str(what)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


# Runs in the other interpreter. The answer goes through descriptor 3, so that what their module prints
# cannot get into it; what is no plain data becomes the name of its type.
_IMPORTER = """
import importlib, json, os, sys
out = os.fdopen(int(sys.argv[2]), "w")
sys.path.insert(0, os.getcwd())
module, _, name = sys.argv[1].partition(":")
try:
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_unset=True)
    elif hasattr(value, "dict") and not isinstance(value, dict):
        value = value.dict(exclude_unset=True)
    out.write(json.dumps({"value": value}, default=lambda o: "<" + type(o).__name__ + ">"))
except BaseException as error:
    text = (str(error).strip().splitlines() or [""])[0][:200]
    out.write(json.dumps({"error": type(error).__name__ + (": " + text if text else "")}))
out.flush()
os._exit(0)
"""


def _imported(name: str, python: str, cwd: str | None) -> Mapping[str, Any]:
    reading, writing = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [python, "-c", _IMPORTER, name, str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writing,),
                cwd=cwd,
                env={**os.environ, "MEM0_TELEMETRY": "False"},
                start_new_session=True,
            )
        except OSError as error:
            raise UsageProblem(f"{name}: {python} cannot be run: {(error.strerror or '?').lower()}") from None
        os.close(writing)
        writing = -1
        with process:
            answer = _answer(process, reading, name)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    try:
        got = json.loads(answer)
    except ValueError:
        raise UsageProblem(f"{name}: its import ended the interpreter before there was a value") from None
    if "error" in got:
        raise UsageProblem(
            f"{name}: {got['error']}", "it is imported from the working directory and its Python"
        )
    if not isinstance(got["value"], dict):
        raise UsageProblem(f"{name} is not a dict")
    return dict(got["value"])


def _answer(process: subprocess.Popen[bytes], reading: int, name: str) -> bytes:
    """What the child writes before it ends; a grandchild that keeps the pipe open does not hold us up."""
    answer = b""
    end = time.monotonic() + _IMPORT_TIMEOUT
    while True:
        ended = process.poll() is not None
        ready, _, _ = select.select([reading], [], [], 0 if ended else 0.05)
        piece = os.read(reading, 65536) if ready else b""
        answer += piece
        if (ready and not piece) or (ended and not ready):
            return answer
        if time.monotonic() > end or len(answer) > 16_000_000:
            os.killpg(process.pid, signal.SIGKILL)
            raise UsageProblem(f"{name}: importing it took longer than {_IMPORT_TIMEOUT:.0f} s")


def _mapping(raw: Mapping[str, Any], key: str, source: str, name: str | None = None) -> Mapping[str, Any]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageProblem(f"{source}: {name or key} is not a mapping of keys and values")
    return value


def _text(raw: Mapping[str, Any], key: str, source: str, name: str | None = None) -> str | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageProblem(f"{source}: {name or key} = {value!r} is not a text")
    if value is not None and not _is_writable(value):
        raise UsageProblem(f"{source}: {name or key} holds a NUL or half a character")
    return value


def _is_writable(text: str) -> bool:
    """Whether a file can have this name: no NUL, no surrogate that stands for no byte."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _number(raw: Mapping[str, Any], key: str, source: str, name: str) -> int | None:
    value = raw.get(key)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdigit():  # pydantic takes "768" as well
        return int(value)
    if not isinstance(value, int):
        raise UsageProblem(f"{source}: {name} = {value!r} is not a whole number")
    return value


def _did_you_mean(key: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known keys: " + ", ".join(known)


def _meant(key: str, known: frozenset[str]) -> str:
    import difflib

    close = difflib.get_close_matches(str(key), sorted(known), n=1, cutoff=0.6)
    return f": did you mean {close[0]!r}?" if close else ""


def _one_line(problem: UsageProblem | CouldNotRead) -> str:
    return problem.message + (f" ({problem.hint})" if problem.hint else "")
