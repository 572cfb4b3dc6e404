"""What the agent's mem0 configuration must say after its stores have moved, as lines to change.

mem0 takes a dict (`Memory.from_config`), which a program writes itself or reads from a YAML, JSON or TOML file. The
vector store's folder is `vector_store.config.path`, the log `history_db_path`: so in every version from 0.0.2 to
2.2.1 (read in mem0/configs/base.py, mem0/configs/vector_stores/qdrant.py, and run with 0.1.114, 1.0.7 and 2.2.1).
No environment variable names the folder; MEM0_DIR (from 0.1.3 on) decides the log where the dict does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mem0audit.core.errors import Refused
from mem0audit.core.links import LinkPlan
from mem0audit.core.server import ServerAddress
from mem0audit.core.versions import changes_given_config, one_memory_a_folder, wipes_folder_at_start
from mem0audit.core.words import shell_word

Form = Literal["python", "yaml", "json", "toml"]
PATH = ("vector_store", "config", "path")
ON_DISK = ("vector_store", "config", "on_disk")
HISTORY = ("history_db_path",)
KEY_HERE = "THE-API-KEY"
"""Stands where the key of a server belongs, which is printed nowhere."""
_STEP = "  "


@dataclass(frozen=True)
class Change:
    """One value of the dict: where it is, and what it must be; None: it must not be there."""

    key: tuple[str, ...]
    value: str | bool | int | None


def changes(
    mem0: str | None,
    *,
    vectors: str | None = None,
    history: str | None = None,
    raw: Mapping[str, Any] | None = None,
    collection: str | None = None,
) -> tuple[Change, ...]:
    """What must be said for stores that now lie at `vectors` (a folder) and `history` (a file); None: not moved.

    `mem0` is the agent's version (None: unknown), `raw` the dict as it is now, where it is known; where it is not, a
    `collection` that is not mem0's default is said too. `on_disk: true`
    comes with the folder for mem0 0.0.16 to 1.0.7, which delete it at start otherwise, and where the version is not
    known; later ones take it and keep the folder either way. Raises Refused for 0.0.8 to 0.0.15, which delete the
    folder at every start whatever the dict says.
    """
    found = []
    if vectors is not None:
        refuse_wiping(mem0)
        if (raw or {}).get("vector_store") is None:
            found.append(Change(("vector_store", "provider"), "qdrant"))
        if raw is None and collection not in (None, "mem0"):
            found.append(Change(("vector_store", "config", "collection_name"), str(collection)))
        found.append(Change(PATH, vectors))
        if wipes_folder_at_start(mem0, None) is not False:
            found.append(Change(ON_DISK, True))
    if history is not None:
        found.append(Change(HISTORY, history))
    return tuple(found)


def server_changes(
    address: ServerAddress,
    with_key: bool,
    raw: Mapping[str, Any] | None,
    collection: str | None,
    gone: Sequence[str],
) -> tuple[Change, ...]:
    """What must be said for vectors that now are on a server; `gone` is what must not be said beside it.

    mem0 takes host and port, or a url with an api_key, and then opens no folder (mem0/vector_stores/qdrant.py). A url
    without a key passes its own check only beside a `path`, which it does not use then.
    """
    inside = ("vector_store", "config")
    found = (
        [Change(("vector_store", "provider"), "qdrant")] if (raw or {}).get("vector_store") is None else []
    )
    if raw is None and collection not in (None, "mem0"):
        found.append(Change((*inside, "collection_name"), str(collection)))
    if with_key:
        found += [Change((*inside, "url"), address.url), Change((*inside, "api_key"), KEY_HERE)]
    elif address.scheme == "http" and not address.prefix:
        found += [Change((*inside, "host"), address.host), Change((*inside, "port"), address.port)]
    else:
        found.append(Change((*inside, "url"), address.url))
        if not value_at(raw or {}, PATH):
            found.append(Change(PATH, "unused"))
    return (*found, *taken_out(gone, raw))


def not_beside(address: ServerAddress | None, with_key: bool, *, from_folder: bool) -> tuple[str, ...]:
    """What must not be said beside that: mem0 would go on talking to the old server, or refuse two places at once.
    `address` None: the vectors now lie in a folder; `from_folder`: they did until now, which is all that `on_disk` was
    for."""
    folders = ("on_disk",) if from_folder else ()
    if address is None:
        return ("host", "port", "url", "api_key", "https")
    if with_key:
        return (*folders, "path", "host", "port")
    if address.scheme == "http" and not address.prefix:
        return (*folders, "path", "url", "api_key", "https")
    return (*folders, "host", "port", "api_key")


def taken_out(names: Sequence[str], raw: Mapping[str, Any] | None) -> tuple[Change, ...]:
    """That these keys of the vector store, where they are said, are said no more."""
    inside = ("vector_store", "config")
    there = value_at(raw or {}, inside)
    return tuple(Change((*inside, n), None) for n in names if isinstance(there, Mapping) and n in there)


def refuse_wiping(mem0: str | None) -> None:
    """Raises Refused for a mem0 that deletes the vector store's folder at every start: no configuration keeps it."""
    if wipes_folder_at_start(mem0, True):
        raise Refused(
            f"mem0 {mem0} deletes its vector store's folder at every start, wherever it is and whatever its "
            "configuration says",
            "upgrade the agent's mem0 first: 0.0.16 and later keep it with on_disk: true, 1.0.8 and later always",
        )


def differing(wanted: Sequence[Change], raw: Mapping[str, Any]) -> tuple[Change, ...]:
    """Those that the dict does not say yet, in so many words: `on_disk: 1` is no true."""

    def is_said(change: Change) -> bool:
        there = value_at(raw, change.key)
        if change.value is None:
            return not _is_dict(raw, change.key[:-1]) or change.key[-1] not in value_at(raw, change.key[:-1])
        return type(there) is type(change.value) and bool(there == change.value)

    return tuple(change for change in wanted if not is_said(change))


def value_at(raw: Mapping[str, Any], key: Sequence[str]) -> Any:
    """A value of the dict, None where it is not there."""
    value: Any = raw
    for part in key:
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def with_changes(raw: Mapping[str, Any], wanted: Sequence[Change]) -> dict[str, Any]:
    """The dict as it must be afterwards; `raw` stays as it is."""
    result: dict[str, Any] = _own(raw)
    for change in wanted:
        inner = result
        for part in change.key[:-1]:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        if change.value is None:
            inner.pop(change.key[-1], None)
        else:
            inner[change.key[-1]] = change.value
    return result


def _own(value: Any) -> Any:
    """A copy in which nothing is shared, not even what YAML's aliases share."""
    if isinstance(value, Mapping):
        return {key: _own(inner) for key, inner in value.items()}
    return [_own(inner) for inner in value] if isinstance(value, list) else value


# --- Lines --------------------------------------------------------------------------------------


def lines(
    form: Form, wanted: Sequence[Change], raw: Mapping[str, Any] | None, name: str = "config"
) -> tuple[str, ...]:
    """The lines for what the user uses, complete as they stand.

    YAML, JSON and TOML: the part of the file with these values in it, each under its own key. Python, where the dict
    is known (`raw`): one assignment a value, to go after the dict called `name`; where there is none yet
    (`Memory()`): the whole dict and the call that takes it.
    """
    if form == "python":
        return _python(wanted, raw, name)
    tree = with_changes({}, wanted)
    if form == "json":
        return tuple(json.dumps(tree, indent=2, ensure_ascii=False).split("\n"))
    return tuple(yaml_lines(tree)) if form == "yaml" else tuple(_toml(tree))


def environment_lines(history: str) -> tuple[str, ...]:
    """The same for the log alone, through the environment: for a shell, then for a systemd unit.

    () where mem0 cannot be told so: it looks for `history.db` in MEM0_DIR, which must be set before mem0 is imported,
    and counts only where the dict has no `history_db_path`. Its `config.json` is then looked for there as well.
    """
    folder, _, name = history.rpartition("/")
    if name != "history.db" or not folder or not folder.isprintable():
        return ()
    unit = folder.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    quoted = f'"MEM0_DIR={unit}"' if re.search(r"[^\w/.@:+-]", folder) else f"MEM0_DIR={folder}"
    return (f"export MEM0_DIR={shell_word(folder)}", f"Environment={quoted}")


def notes(mem0: str | None, wanted: Sequence[Change]) -> tuple[str, ...]:
    """What else must be known of this mem0 before these lines are used, a sentence each."""
    said = []
    if any(change.key == ON_DISK for change in wanted):
        if mem0 is None:
            said.append(
                "The agent's mem0 is not known. on_disk: true is for those before 1.0.8, which delete the folder at "
                "every start without it (0.0.8 to 0.0.15 even with it); later ones keep it either way."
            )
        else:
            said.append(
                f"on_disk: true must be there: without it mem0 {mem0} deletes the folder at every start, "
                "with all that is in it."
            )
        if one_memory_a_folder(mem0):
            said.append(
                f"With on_disk: true, mem0 {mem0} can be open once for a MEM0_DIR: a second Memory beside the first "
                'fails with "already accessed" (its own migrations_qdrant). Give each program a MEM0_DIR of its own.'
            )
    if any(change.key == PATH for change in wanted) and changes_given_config(mem0):
        said.append(
            f"mem0 {mem0} changes the MemoryConfig object that it is given: a second Memory from the same object would "
            "write to its migrations. Use Memory.from_config with the dict, as here, never Memory(object) twice."
        )
    return tuple(said)


def server_notes(wanted: Sequence[Change], form: Form, not_beside: Sequence[str] = ()) -> tuple[str, ...]:
    """What else must be known before these lines are used, a sentence each. `not_beside` is what may not stand beside
    them in a dict that is not known."""
    said = []
    gone = [".".join(change.key) for change in wanted if change.value is None]
    if gone and form != "python":
        said.append(f"Take out: {', '.join(gone)}.")
    if not_beside:
        said.append(f"None of these may stay beside them: {', '.join(not_beside)}.")
    if any(change.value == KEY_HERE for change in wanted):
        said.append(
            "For THE-API-KEY put the key itself, in a file that only the agent's user can read, or have the program "
            "take it from its environment."
        )
    if any(change == Change(PATH, "unused") for change in wanted):
        said.append(
            "path is there because mem0 takes a url without a key only beside one; it opens no folder."
        )
    return tuple(said)


def _python(wanted: Sequence[Change], raw: Mapping[str, Any] | None, name: str) -> tuple[str, ...]:
    if raw is None:
        return (
            f"{name} = {{",
            *_dict_lines(with_changes({}, wanted), 1),
            "}",
            f"memory = Memory.from_config({name})",
        )
    made: dict[tuple[str, ...], dict[str, Any]] = {}
    said: dict[tuple[str, ...], Any] = {}
    gone = [change.key for change in wanted if change.value is None]
    for change in wanted:
        if change.value is None:
            continue
        there = next((n for n in range(1, len(change.key)) if not _is_dict(raw, change.key[:n])), None)
        if there is None:
            said[change.key] = change.value
            continue
        tree = made.setdefault(change.key[:there], {})
        tree.update(with_changes(tree, [Change(change.key[there:], change.value)]))
        said[change.key[:there]] = tree

    def at(key: Sequence[str]) -> str:
        return name + "".join(f"[{_quoted(k)}]" for k in key)

    return (*(f"{at(key)} = {_literal(v)}" for key, v in said.items()), *(f"del {at(key)}" for key in gone))


def _is_dict(raw: Mapping[str, Any], key: Sequence[str]) -> bool:
    return isinstance(value_at(raw, key), Mapping)


def _dict_lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    pad, out = "    " * depth, []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out += [f"{pad}{_quoted(key)}: {{", *_dict_lines(value, depth + 1), f"{pad}}},"]
        else:
            out.append(f"{pad}{_quoted(key)}: {_literal(value)},")
    return out


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    # JSON's escapes mean the same in Python (and half a character has the same spelling)
    return json.dumps(text, ensure_ascii=not text.isprintable())


def yaml_lines(tree: Mapping[str, Any], depth: int = 0, step: str = _STEP) -> list[str]:
    """A tree of texts and booleans as YAML in block style."""
    out = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out += [f"{step * depth}{key}:", *yaml_lines(value, depth + 1, step)]
        else:
            out.append(f"{step * depth}{key}: {yaml_scalar(value)}")
    return out


def yaml_scalar(value: str | bool | int | None) -> str:
    """A text, number or boolean as YAML; quoted unless it is a plain absolute path or word that can mean nothing
    else."""
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"/[\w./@+-]*", value, re.ASCII) or value == "qdrant"
    return value if plain else _quoted(value)


def _toml(tree: Mapping[str, Any], table: str = "") -> list[str]:
    out = [f"{key} = {toml_value(value)}" for key, value in tree.items() if not isinstance(value, Mapping)]
    for key, value in tree.items():
        if isinstance(value, Mapping):
            name = f"{table}{key}"
            inner = _toml(value, f"{name}.")
            head = [f"[{name}]"] if any(not isinstance(v, Mapping) for v in value.values()) else []
            out += [*([""] if out and head else []), *head, *inner]
    return out


def toml_value(value: str | bool | int | None) -> str:
    """A text, number or boolean as TOML."""
    if not isinstance(value, str):
        return json.dumps(value)
    return _quoted(value)


# --- What is said and done about it ---------------------------------------------------------------


@dataclass(frozen=True)
class FileUpdate:
    """A configuration file as it is and as it would be. `path` is as it was named, `real` with its links followed.

    `keys` are the values that change ("vector_store.config.path"); `diff` is for people: unified, with what looks like
    a secret masked.
    """

    path: str
    real: str
    kind: str
    wanted: tuple[Change, ...]
    diff: tuple[str, ...]
    before: bytes
    after: bytes

    @property
    def keys(self) -> tuple[str, ...]:
        """The values that change, as dotted names."""
        return tuple(".".join(change.key) for change in self.wanted)


def is_own(keys: Sequence[str]) -> bool:
    """Whether these values are of mem0audit's own settings, which no agent reads."""
    return set(keys) <= {"qdrant_path", "history"}


@dataclass(frozen=True)
class Advice:
    """What must change for stores that moved. `where` is where the agent's configuration is, as far as it is known.

    `lines` are complete for `form`; () where the agent's file says it all already. `environment` is another way for
    the log alone. `updates` are the files that `--update-config` would change, `cannot` those that it leaves to their
    owner, as (name, rest of the sentence).
    """

    form: Form
    where: str
    lines: tuple[str, ...]
    environment: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    updates: tuple[FileUpdate, ...] = ()
    cannot: tuple[tuple[str, str], ...] = ()
    is_whole: bool = False
    """`lines` are a whole dict: what the agent has now is not known."""


@dataclass(frozen=True)
class Updated:
    """A file that was changed, read again, and found to say what it must and nothing else new."""

    path: str
    keys: tuple[str, ...]
    backup: str


@dataclass(frozen=True)
class AfterMove:
    """What comes after the stores moved: what the agent's configuration must say, and what was asked for to be done
    about it (files changed, links left at the old places)."""

    advice: Advice
    update: bool = False
    links: tuple[LinkPlan, ...] = ()


@dataclass(frozen=True)
class DoneAfter:
    """What was done of that. `problems` are what failed, a sentence each, the move standing all the same."""

    updated: tuple[Updated, ...] = ()
    linked: tuple[LinkPlan, ...] = ()
    problems: tuple[str, ...] = ()
