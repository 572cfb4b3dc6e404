"""Which paths systemd-tmpfiles empties, from the rules that are really in force.

The behaviour was taken from systemd-tmpfiles 252 by running it on folders made for it; where its manual
says otherwise the program is followed (an `X` line takes over the age of the directory above it; a line
with `!` is never used by the periodic cleaning; any line for a path keeps the cleaning of a directory
above from going into it).
"""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH110, PTH112, PTH113, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mem0audit.core.model import Cleaning
from mem0audit.install.host import Host, home_of_uid, read_text, resolved, seen_through
from mem0audit.install.mounts import covers, mount_under

FOLDERS = (
    "/etc/tmpfiles.d",
    "/run/tmpfiles.d",
    "/usr/local/lib/tmpfiles.d",
    "/usr/lib/tmpfiles.d",
    "/lib/tmpfiles.d",
)
"""Where rules are, the strongest first: of two files with one name only the first counts."""

_MOST_DATABASES = 50
_CREATES = "dDvqQ"
_GLOBS = "wexXrRzZtThHaAm"
_TAKES_PATH = "fFdDvqQpLcbCwexXrR"
_UNITS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0,
    "day": 86400.0, "days": 86400.0, "w": 604800.0, "week": 604800.0, "weeks": 604800.0, "M": 2629800.0,
    "month": 2629800.0, "months": 2629800.0, "y": 31557600.0, "year": 31557600.0, "years": 31557600.0,
    "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "usec": 1e-6, "µs": 1e-6,
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One line. `age` is None where it has none (or "-"), else as written, checked to be an age."""

    kind: str
    boot_only: bool
    path: str
    age: str | None
    argument: str | None
    source: str
    number: int
    line: str
    says: tuple[str, ...] = ()
    """Mode, user, group, age and argument, as written."""

    @property
    def takes_glob(self) -> bool:
        """Whether the path is a shell pattern."""
        return self.kind in _GLOBS

    def matches(self, path: str) -> bool:
        """Whether the line is for this very path. Stars match within one part of a path."""
        if not self.takes_glob:
            return self.path == path
        mine, theirs = self.path.split("/"), path.split("/")
        return len(mine) == len(theirs) and all(
            fnmatch.fnmatchcase(part, choice) and not (part.startswith(".") and choice[:1] in ("*", "?", "["))
            for part, choice in zip(theirs, mine, strict=True)
        )


def cleaned(path: str, host: Host) -> Cleaning | None:
    """The rule by which systemd-tmpfiles empties or removes `path` of this host, None if none does.

    Of an embedded folder also one that takes a database in it. Emptying at boot comes before cleaning by
    age. None where systemd does not run (rules that nobody runs empty nothing), where its service is
    masked, or where another filesystem is mounted between the rule's directory and the path: the cleaning
    does not cross mounts. A lock on Qdrant's `.lock` does not protect: only a lock on the directory does.
    """
    if seen_through(path, host)[0] is not None or not os.path.isdir(host.at("/run/systemd/system")):
        return None
    rules = read_rules(host)
    try:
        real = resolved(path, host)
    except OSError:
        return None
    # The data first; then the link that leads to it (without it the agent starts with an empty store).
    literal = os.path.normpath(path)
    for places in (_databases(real, host) or [real], [literal] if literal != real else []):
        for look in (_at_boot, _by_age):
            for place in places:
                found = look(place, rules, host)
                if found is not None:
                    return found
    return None


def _databases(folder: str, host: Host) -> list[str]:
    """The files an embedded store lives by: a rule may be for them, or for a folder between."""
    found = [f"{folder}/meta.json"] if os.path.isfile(host.at(f"{folder}/meta.json")) else []
    for base, folders, names in os.walk(host.at(f"{folder}/collection")):
        folders.sort()
        if "storage.sqlite" in names:
            found.append(base[len(host.at(folder)) - len(folder) :] + "/storage.sqlite")
        if len(found) >= _MOST_DATABASES:
            break
    return found


def read_rules(host: Host) -> tuple[Rule, ...]:
    """Every valid line of every file in force, by file name and then in order. Masked files are out."""
    chosen: dict[str, str] = {}
    for folder in FOLDERS:
        try:
            names = os.listdir(host.at(folder))
        except OSError:
            continue
        for name in names:
            if name.endswith(".conf"):
                chosen.setdefault(name, f"{folder}/{name}")
    rules: list[Rule] = []
    for name in sorted(chosen):
        file = chosen[name]
        # A link to /dev/null masks the file of that name: it reads as empty.
        for number, line in enumerate(read_text(_file_at(file, host)).splitlines(), 1):
            rule = _parse(line.strip(), file, number, host)
            if rule is not None:
                rules.append(rule)
    return tuple(rules)


def _file_at(file: str, host: Host) -> str:
    # Links inside another root are that root's.
    try:
        real = resolved(file, host)
    except OSError:
        return host.at(file)
    return real if real == "/dev/null" else host.at(real)


def _parse(line: str, source: str, number: int, host: Host) -> Rule | None:
    if not line or line[0] in "#;":
        return None
    fields = _fields(line, 7)
    if fields is None or len(fields) < 2:
        return None
    kind, marks = fields[0][:1], fields[0][1:]
    if not kind.isalpha() or set(marks) - set("!-+=~^$?"):
        return None
    path = _expand(fields[1], host)
    if path is None or not path.startswith("/"):
        return None
    age = fields[5] if len(fields) > 5 and fields[5] != "-" else None
    if age is not None and seconds_of(age) is None:
        return None
    argument = fields[6] if len(fields) > 6 and fields[6] != "-" else None
    path = _parents_resolved(os.path.normpath("/" + path.lstrip("/")), kind, host)
    says = tuple("" if field == "-" else field for field in [*fields[2:], *[""] * 5][:5])
    return Rule(kind, "!" in marks, path, age, argument, source, number, line, says)


def _fields(line: str, most: int) -> list[str] | None:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    fields: list[str] = []
    try:
        for field in lexer:
            fields.append(field)
            if len(fields) == most:
                break
    except ValueError:
        return None
    return fields


def _parents_resolved(path: str, kind: str, host: Host) -> str:
    # Links in the parents are followed, a link as the last part is not: `D /tmp` leaves a linked /tmp.
    if kind in _GLOBS:
        return path
    try:
        return os.path.join(resolved(os.path.dirname(path), host), os.path.basename(path))
    except OSError:
        return path


def _expand(text: str, host: Host) -> str | None:
    def value(found: re.Match[str]) -> str:
        letter = found[1]
        if letter not in _SPECIFIERS:
            raise KeyError(letter)
        return _specifier(letter, host)

    try:
        return re.sub(r"%(.?)", value, text)
    except KeyError:
        return None


_SPECIFIERS = "%tTVSCLhugUGbmvHloAwWBM"


def _specifier(letter: str, host: Host) -> str:
    fixed = {
        "%": "%", "t": "/run", "T": "/tmp", "V": "/var/tmp", "S": "/var/lib", "C": "/var/cache",  # noqa: S108
        "L": "/var/log", "u": "root", "g": "root", "U": "0", "G": "0",
    }  # fmt: skip
    if letter in fixed:
        return fixed[letter]
    if letter == "h":
        return (home_of_uid(0) if host.root == "/" else None) or "/root"
    if letter == "b":
        return read_text(f"{host.proc}/sys/kernel/random/boot_id").strip().replace("-", "")
    if letter == "m":
        return read_text(host.at("/etc/machine-id")).strip()
    if letter == "v":
        return read_text(f"{host.proc}/sys/kernel/osrelease").strip()
    if letter in "Hl":
        name = read_text(f"{host.proc}/sys/kernel/hostname").strip()
        return name.partition(".")[0] if letter == "l" else name
    key = {"o": "ID", "w": "VERSION_ID", "W": "VARIANT_ID", "B": "BUILD_ID", "A": "IMAGE_VERSION"}
    release = read_text(host.at("/etc/os-release"))
    found = re.search(rf"^{key.get(letter, 'IMAGE_ID')}=(.*)$", release, re.MULTILINE)
    return found[1].strip("\"'") if found else ""


def seconds_of(age: str) -> float | None:
    """The seconds of an age field ("10d", "~1w", "mbC:2h30min"), None where it is no age."""
    text = age.removeprefix("~")
    by, colon, rest = text.partition(":")
    if colon:
        if not by or set(by) - set("abcmABCM"):
            return None
        text = rest
    if text in ("infinity", ""):
        return None
    total, position = 0.0, 0
    for found in re.finditer(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ]*)", text):
        if found.start() != position or found[2] not in _UNITS:
            return None
        total += float(found[1]) * _UNITS[found[2]]
        position = found.end()
    return total if position == len(text) else None


def _in_force(rules: Sequence[Rule]) -> Iterator[Rule]:
    """Without the lines that an earlier one for the same path, with other mode, owner or age, has made void."""
    taken: dict[tuple[bool, str], tuple[str, ...]] = {}
    for rule in rules:
        key = (rule.takes_glob, rule.path)
        if rule.kind in _TAKES_PATH and taken.setdefault(key, rule.says) != rule.says:
            continue
        yield rule


def _upwards(path: str) -> Iterator[str]:
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _masked(unit: str, host: Host) -> bool:
    files = (f"{folder}/{unit}" for folder in ("/etc/systemd/system", "/run/systemd/system"))
    return any(os.path.realpath(host.at(file)) == "/dev/null" for file in files)


def _same_mount(folder: str, path: str, host: Host) -> bool:
    upper, lower = mount_under(folder, host), mount_under(path, host)
    return upper is None or lower is None or upper.id == lower.id


def _at_boot(path: str, rules: Sequence[Rule], host: Host) -> Cleaning | None:
    """D, R and r lines (the service runs `--create --remove --boot`): x and X lines do not hold them up."""
    if _masked("systemd-tmpfiles-setup.service", host):
        return None
    for rule in _in_force(rules):
        for place in _upwards(path):
            empties = rule.kind == "D" and (place != path or not os.path.isfile(host.at(path)))
            removes = rule.kind == "R" or (
                rule.kind == "r" and place == path and os.path.isfile(host.at(path))
            )
            if (empties or removes) and rule.matches(place):
                if not _same_mount(place, path, host):
                    continue
                return Cleaning(f"{rule.source}:{rule.number}", rule.line, "at boot")
    return None


def _by_age(path: str, rules: Sequence[Rule], host: Host) -> Cleaning | None:
    """The nearest path upwards that any line is for decides: that line cleans it, or keeps others out."""
    if any(_masked(f"systemd-tmpfiles-clean.{kind}", host) for kind in ("timer", "service")):
        return None
    periodic = tuple(_in_force([rule for rule in rules if not rule.boot_only]))
    is_file = os.path.isfile(host.at(path))
    for place in _upwards(path):
        here = [rule for rule in periodic if rule.matches(place)]
        if not here:
            continue
        if place == path and is_file:
            return None
        for rule in here:
            ruling = _inherited(rule, periodic) if rule.kind == "X" and rule.age is None else rule
            if ruling is None or ruling.age is None or rule.kind not in _CREATES + "CexX":
                continue
            if rule.kind == "C" and not _has_source(rule, host):
                continue
            if rule.kind == "x" and rule.path != place:
                continue  # an x line keeps others out by its stars, but cleans only what it names
            # "~": what lies directly in the directory stays, what lies deeper does not.
            if ruling.age.startswith("~") and is_file and os.path.dirname(path) == place:
                continue
            if _same_mount(place, path, host):
                age = ruling.age.removeprefix("~").rpartition(":")[2]
                return Cleaning(f"{ruling.source}:{ruling.number}", ruling.line, age)
        return None
    return None


def _inherited(rule: Rule, periodic: Sequence[Rule]) -> Rule | None:
    above = [other for other in periodic if other.kind in _CREATES and covers(other.path, rule.path)]
    return max(above, key=lambda other: len(other.path), default=None)


def _has_source(rule: Rule, host: Host) -> bool:
    return os.path.exists(host.at(rule.argument or f"/usr/share/factory{rule.path}"))
