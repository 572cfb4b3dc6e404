"""What a text renderer is told of where it prints: width, colour, how much, and how we were called."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from mem0audit.core.model import Severity
from mem0audit.report.escape import escape, shell_word

_COLOURS = {
    Severity.CRITICAL: "1;31",
    Severity.HIGH: "31",
    Severity.MEDIUM: "33",
    Severity.LOW: "36",
    Severity.INFO: "2",
}
_OURS = re.compile(
    r"(?<![\w/.=-])mem0audit "
    r"(?=(?:--help|audit|status|explain|show|users|log|as-of|new|snapshot|relocate|recover|repair|prune|delete|residue"
    r"|export|facts|ledger|review|schedule|config|help|demo)\b)"
)
_ABOUT_INSTALL = re.compile(
    r"(\s*mem0audit )"
    r"(audit|status|show|users|log|as-of|new|snapshot create|snapshot restore|relocate|recover|repair|prune|delete"
    r"|residue|export|facts current|facts as-of|facts revoke|facts history|facts remember"
    r"|ledger status|ledger source|ledger expire|ledger supersede"
    r"|review confirm|review replace|review expire|review delete|review)"
    r"(?= |$)"
)
_NAMED = re.compile(r" --(history|qdrant-path|qdrant-url|config|snapshot)\b")


_OF_CLUSTERS = ("audit", "snapshot create", "snapshot restore", "snapshot verify")


def _taken(flags: tuple[str, ...], command: str) -> tuple[str, ...]:
    """Of the flags that name an install, those that a command takes."""
    pairs = zip(flags[::2], flags[1::2], strict=True)
    if command == "log":
        return tuple(word for pair in pairs if pair[0] in ("--history", "--config") for word in pair)
    nodes_too = command in _OF_CLUSTERS
    return tuple(word for pair in pairs if nodes_too or pair[0] != "--node" for word in pair)


@dataclass(frozen=True)
class Screen:
    """`width` columns (prose wraps there, ids and commands never do), `colour` ANSI on or off.

    `program` is how this program was called, so that a printed command runs as printed; `flags` are
    those with which the user named the install, repeated in every command that looks at it again.
    `program_for_root` is the same for use behind `sudo`, which looks in no folder of the user's.
    `sqlite3_shell` says whether the sqlite3 program is there for manual steps.
    """

    width: int = 100
    colour: bool = False
    verbose: bool = False
    quiet: bool = False
    program: str = "mem0audit"
    program_for_root: str | None = None
    flags: tuple[str, ...] = ()
    sqlite3_shell: bool = True

    def command(self, name: str, *words: str) -> str:
        """A command of ours for the same install, quoted for a shell."""
        return " ".join([self.program, name, *(shell_word(w) for w in (*_taken(self.flags, name), *words))])

    def ours(self, text: str) -> str:
        """`text` with our own commands in it spelled as the user called us; a line that is a command about
        the install gets the user's flags, where it names none."""
        return "\n".join(self._ours(line) for line in text.split("\n"))

    def _ours(self, line: str) -> str:
        found = _ABOUT_INSTALL.match(line)
        if found and self.flags and not line.rstrip().endswith((".", ":")) and not _NAMED.search(line):
            words = " ".join(shell_word(w) for w in _taken(self.flags, found[2]))
            line = f"{found[1]}{found[2]} {words}{line[found.end() :]}" if words else line
        line = line.replace("sudo mem0audit ", f"sudo {self.program_for_root or self.program} ")
        if self.program in line:
            return line  # spelled so already, by `command`
        return _OURS.sub(lambda _: self.program + " ", line)

    def paint(self, text: str, code: str) -> str:
        """`text` in an ANSI colour, if there is colour."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> str:
        """Emphasised."""
        return self.paint(text, "1")

    def faint(self, text: str) -> str:
        """Less important."""
        return self.paint(text, "2")

    def alarm(self, text: str) -> str:
        """What must be seen first."""
        return self.paint(text, "1;31")

    def severity(self, severity: Severity, text: str) -> str:
        """`text` in the colour of a severity."""
        return self.paint(text, _COLOURS[severity])

    def wrap(
        self, text: str, indent: int = 0, hanging: int | None = None, first: str | None = None
    ) -> list[str]:
        """Escaped prose as lines of at most `width`; words (ids, paths) are never cut. `first` begins the
        first line in place of its indent."""
        return textwrap.wrap(
            escape(text),
            width=max(self.width, 40),
            initial_indent=" " * indent if first is None else first,
            subsequent_indent=" " * (indent if hanging is None else hanging),
            break_long_words=False,
            break_on_hyphens=False,
        )

    def fill(self, parts: Sequence[str], indent: int) -> list[str]:
        """Parts (already escaped) joined by commas, broken only between two of them."""
        lines: list[str] = []
        for index, part in enumerate(parts):
            word = part + ("," if index < len(parts) - 1 else "")
            if lines and len(lines[-1]) + 1 + len(word) <= self.width:
                lines[-1] += " " + word
            else:
                lines.append(" " * indent + word)
        return lines

    def columns(self, parts: Sequence[str], indent: int) -> list[str]:
        """Parts (already escaped) two spaces apart, broken only between two of them."""
        lines: list[str] = []
        for part in parts:
            if lines and len(lines[-1]) + 2 + len(part) <= self.width:
                lines[-1] += "  " + part
            else:
                lines.append(" " * indent + part)
        return lines

    def steps(self, text: str, indent: int) -> list[str]:
        """Advice line by line, indented: a sentence (it ends in a stop or a colon) is wrapped; a command
        stands whole on its line, however long, so that it can be copied."""
        lines = []
        for line in self.ours(text).splitlines():
            if line.rstrip().endswith((".", ":")) and not line.startswith("    "):
                lines += self.wrap(line.strip(), indent, indent + 2)
            elif line.strip():
                lines.append(" " * indent + escape(line.strip()))
        return lines


def table(rows: Sequence[Sequence[str]], indent: int = 0, right: Sequence[int] = ()) -> list[str]:
    """Rows of (already escaped) cells in columns, two spaces apart; `right` are right-aligned columns."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    return [
        (
            " " * indent
            + "  ".join(
                cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)
            )
        ).rstrip()
        for row in rows
    ]
