"""A mem0 configuration file's text with some values changed, and every other character as it was.

JSON and YAML are edited at the positions where their parsers saw the values, TOML by tomlkit, which keeps what it
does not change. Nothing here is believed: who uses the new text parses it again and compares (`same`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mem0audit.core.agentconfig import Change, toml_value, value_at, with_changes, yaml_lines, yaml_scalar

if TYPE_CHECKING:
    import yaml

# ${NAME}, $NAME, $(…), {{ … }}, %(name)s, <% … %>, env:NAME, os.environ/NAME
_FILLED_IN = re.compile(r"\$\w|\$\{|\$\(|\{\{|%\(\w+\)|<%|^(?:env|ENV):|^os\.environ/")


class CannotEdit(Exception):
    """Why a file is left to its owner: the rest of a sentence that begins with its name."""


@dataclass(frozen=True)
class _Edit:
    """Characters start to end become `text`. Of two at one place the deeper one stays in front."""

    start: int
    end: int
    text: str
    depth: int = 0


def edited(text: str, kind: str, raw: Mapping[str, Any], wanted: Sequence[Change]) -> str:
    """The text of a file of this kind ("json", "yaml", "toml") that parses to `raw`, with these changes.

    Comments, order, quotes, indentation and line ends stay; a value that was not there comes beside its siblings.
    Raises CannotEdit where a value comes from somewhere else (an anchor, a variable) or is not there in a way that is
    plain to edit.
    """
    for change in wanted:
        refuse_filled_in(raw, change)
    ends = "\r\n" if "\r\n" in text else "\n"
    if kind == "toml":
        return _toml(text, raw, wanted, ends)
    edits = _json(text, raw, wanted) if kind == "json" else _yaml(text, raw, wanted)
    for edit in sorted(edits, key=lambda one: (-one.start, one.depth)):
        text = text[: edit.start] + edit.text.replace("\n", ends) + text[edit.end :]
    return text


def same(one: Any, other: Any) -> bool:
    """Whether two parsed values are equal, types too (1 is not true), whatever the order of their keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)


def refuse_filled_in(raw: Mapping[str, Any], change: Change) -> None:
    """Raises CannotEdit where the value, or what it would become, looks like one that something fills in."""
    name = ".".join(change.key)
    for index in range(1, len(change.key) + 1):
        there = value_at(raw, change.key[:index])
        if isinstance(there, str) and _FILLED_IN.search(there):
            raise CannotEdit(
                f"fills in {'.'.join(change.key[:index])} from elsewhere ({there}): change it there, or write it out"
            )
    if isinstance(change.value, str) and _FILLED_IN.search(change.value):
        raise CannotEdit(
            f"may be read by something that fills in variables, and the new {name} looks like one"
        )


def _new_trees(
    raw: Mapping[str, Any], wanted: Sequence[Change]
) -> tuple[list[Change], dict[tuple[str, ...], dict[str, Any]]]:
    """Changes of values that are there, and by the mapping that they go into, trees of those that are not."""
    there: list[Change] = []
    made: dict[tuple[str, ...], dict[str, Any]] = {}
    for change in wanted:
        depth = 0
        while depth < len(change.key) - 1 and isinstance(value_at(raw, change.key[: depth + 1]), Mapping):
            depth += 1
        above = value_at(raw, change.key[:depth]) if depth else raw
        if change.key[depth] not in above:
            tree = made.setdefault(change.key[:depth], {})
            made[change.key[:depth]] = with_changes(tree, [Change(change.key[depth:], change.value)])
        elif depth == len(change.key) - 1 and not isinstance(above[change.key[depth]], (Mapping, list)):
            there.append(change)
        else:
            raise CannotEdit(f"has {'.'.join(change.key[: depth + 1])} in a form that mem0 does not take")
    return there, made


# --- JSON ---------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class _Member:
    """A key of a JSON object and its value, by position; `before` is the white space before the key."""

    key: str
    before: str
    between: str
    start: int
    end: int


def _members(text: str, brace: int) -> list[_Member]:
    """The members of the object that begins at `brace`, in text that is known to be JSON."""
    found: list[_Member] = []
    at = brace + 1
    while True:
        space = _SPACE.match(text, at)
        assert space is not None
        if text[space.end()] == "}":
            return found
        key, after = json.decoder.scanstring(text, space.end() + 1)  # type: ignore[attr-defined]
        colon = re.compile(r"[ \t\r\n]*:[ \t\r\n]*").match(text, after)
        assert colon is not None
        _, end = json.JSONDecoder().raw_decode(text, colon.end())
        found.append(_Member(key, space[0], colon[0], colon.end(), end))
        rest = re.compile(r"[ \t\r\n]*,?").match(text, end)
        assert rest is not None
        at = rest.end()


def _json(text: str, raw: Mapping[str, Any], wanted: Sequence[Change]) -> list[_Edit]:
    brace = text.index("{")

    def member(key: Sequence[str]) -> _Member:
        found = [one for one in _members(text, inside(key[:-1])) if one.key == key[-1]]
        if len(found) != 1:
            raise CannotEdit(f"has {'.'.join(key)} twice")
        return found[0]

    def inside(key: Sequence[str]) -> int:
        return member(key).start if key else brace

    edits = []
    there, made = _new_trees(raw, wanted)
    for change in there:
        old = member(change.key)
        edits.append(_Edit(old.start, old.end, _json_value(change.value)))
    for key, tree in made.items():
        members = _members(text, inside(key))
        pairs = [(json.dumps(name), value) for name, value in tree.items()]
        if not members:
            said = ", ".join(f"{name}: {_json_value(value)}" for name, value in pairs)
            edits.append(_Edit(inside(key) + 1, inside(key) + 1, said))
            continue
        beside = next((one for one in members if one.key == "path"), members[-1])
        before = members[-1].before if len(members) > 1 else members[0].before or " "
        pad = before.rpartition("\n")[2] if "\n" in before else None
        said = "".join(f",{before}{name}{beside.between}{_json_value(value, pad)}" for name, value in pairs)
        edits.append(_Edit(beside.end, beside.end, said.replace("\r\n", "\n")))
    return edits


def _json_value(value: Any, pad: str | None = None) -> str:
    if not isinstance(value, Mapping) or pad is None:
        return json.dumps(value, ensure_ascii=isinstance(value, str) and not value.isprintable())
    step = "\t" if "\t" in pad else "    " if len(pad) % 4 == 0 and pad else "  "
    return json.dumps(value, indent=step, ensure_ascii=False).replace("\n", "\n" + pad)


# --- YAML ---------------------------------------------------------------------------------------


def _yaml(text: str, raw: Mapping[str, Any], wanted: Sequence[Change]) -> list[_Edit]:
    import yaml  # 15 ms that most runs do not need

    root = yaml.compose(text, Loader=yaml.SafeLoader)

    def pair(key: Sequence[str]) -> tuple[yaml.ScalarNode, yaml.Node]:
        found = [
            (name, value)
            for name, value in mapping(key[:-1]).value
            if isinstance(name, yaml.ScalarNode) and name.value == key[-1]
        ]
        said = ".".join(key)
        if len(found) > 1:
            raise CannotEdit(f"has {said} twice")
        if not found or found[0][1].start_mark.index < found[0][0].end_mark.index:
            raise CannotEdit(f"takes {said} from an anchor (&, *, <<)")
        name, value = found[0]
        if text[value.start_mark.index : value.start_mark.index + 1] in ("&", "!"):
            raise CannotEdit(f"gives {said} an anchor (&) or a tag (!)")
        return name, value

    def mapping(key: Sequence[str]) -> yaml.MappingNode:
        node = pair(key)[1] if key else root
        assert isinstance(node, yaml.MappingNode)  # as `raw` says
        return node

    edits = []
    there, made = _new_trees(raw, wanted)
    for change in there:
        name, value = pair(change.key)
        between = text[name.end_mark.index : value.start_mark.index]
        old = text[value.start_mark.index : value.end_mark.index]
        if "\n" in old or not isinstance(value, yaml.ScalarNode):
            raise CannotEdit(f"has {'.'.join(change.key)} over several lines")
        edits.append(
            _Edit(
                value.start_mark.index, value.end_mark.index, _like(old, change.value, between.endswith(":"))
            )
        )
    for key, tree in made.items():
        edits.append(_yaml_new(text, mapping(key), tree, key))
    return edits


def _like(old: str, value: str | bool | int | None, empty: bool) -> str:
    """The new value with the quotes that the old one had."""
    new = yaml_scalar(value)
    if isinstance(value, str) and value.isprintable():
        if old.startswith("'"):
            new = "'" + value.replace("'", "''") + "'"
        elif old.startswith('"'):
            new = json.dumps(value, ensure_ascii=False)
    return f" {new}" if empty else new


def _yaml_new(text: str, node: yaml.MappingNode, tree: Mapping[str, Any], key: Sequence[str]) -> _Edit:
    """Keys that a mapping lacks: in block style as lines after `path` or the last key, else inside the braces."""
    pairs = node.value
    beside = next((pair for pair in pairs if pair[0].value == "path"), pairs[-1] if pairs else None)
    if node.flow_style:
        quote = beside is not None and text[beside[0].start_mark.index] in "\"'"
        said = ", ".join(f"{json.dumps(k) if quote else k}: {_flow(v, quote)}" for k, v in tree.items())
        if beside is None:
            return _Edit(node.start_mark.index + 1, node.start_mark.index + 1, said)
        end = beside[1].end_mark.index
        return _Edit(end, end, f", {said}")
    assert beside is not None  # a block mapping has a key
    indent = beside[0].start_mark.column
    line = text.rfind("\n", 0, beside[0].start_mark.index) + 1
    if text[line : beside[0].start_mark.index].strip(" "):
        raise CannotEdit(f"begins {'.'.join(key) or 'its keys'} in the middle of a line")
    after = len(text[: _end_of(beside[1])].rstrip())
    stop = text.find("\n", after)
    lines = "\n".join(" " * indent + one for one in yaml_lines(tree, step=_step_of(node, indent)))
    stop = len(text) if stop < 0 else stop - 1 if text[stop - 1] == "\r" else stop
    return _Edit(stop, stop, "\n" + lines, len(key))


def _flow(value: Any, quote: bool) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{json.dumps(k) if quote else k}: {_flow(v, quote)}" for k, v in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=False) if quote and isinstance(value, str) else yaml_scalar(value)


def _end_of(node: Any) -> int:
    """Where a node's last character lies: a block collection's own end mark is where the next thing begins."""
    if not isinstance(node.value, str) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end_of(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _step_of(node: yaml.MappingNode, indent: int) -> str:
    """The indentation that this file uses below a key."""
    inner = [v for _, v in node.value if hasattr(v, "flow_style") and v.value and not v.flow_style]
    columns = [v.start_mark.column - indent for v in inner if isinstance(v.value[0], tuple)]
    return " " * (columns[0] if columns and columns[0] > 0 else 2)


# --- TOML ---------------------------------------------------------------------------------------


def _toml(text: str, raw: Mapping[str, Any], wanted: Sequence[Change], ends: str) -> str:
    import tomlkit  # 40 ms that most runs do not need
    from tomlkit.exceptions import TOMLKitError

    _new_trees(raw, wanted)
    document: Any = tomlkit.parse(text)
    try:
        for change in wanted:
            inner = document
            for part in change.key[:-1]:
                if part not in inner:
                    inner[part] = tomlkit.table()
                inner = inner[part]
            inner[change.key[-1]] = tomlkit.value(toml_value(change.value))
        new = str(tomlkit.dumps(document))
    except (TOMLKitError, ValueError, TypeError, AttributeError) as error:
        raise CannotEdit(f"cannot be edited ({type(error).__name__})") from None
    return new if ends == "\n" else new.replace("\r\n", "\n").replace("\n", ends)
