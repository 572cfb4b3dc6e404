"""Makes anything that came from a store harmless to print. Every renderer goes through here.

Memory text, ids, owners, paths and error details are other people's input: they can hold terminal
escapes (a title change, a cleared screen), C1 controls, bidirectional overrides that turn a line
around, newlines that forge another line, and lone surrogates that no encoder takes.
"""

from __future__ import annotations

from mem0audit.core.words import shell_word as shell_word


def escape(value: object) -> str:
    r"""`value` as one line of printable text.

    Controls, format characters (bidirectional overrides, zero-width ones), private and unassigned code
    points, surrogates and every space but the ordinary one become `\x1b`, `\u202e`, `\n` and the like.
    Markup (`[bold]`, `<b>`) stays as it is: nothing that prints our output reads markup.
    """
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _named(c) for c in text)


def _named(char: str) -> str:
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_lines(text: str) -> list[str]:
    """`text` broken at its newlines, each line escaped. Print them behind a margin, so that a line of
    the text is never taken for a line of ours."""
    return [escape(line) for line in text.split("\n")]


def without_surrogates(value: object) -> object:
    r"""`value` (as JSON holds it) with lone surrogates spelled out as `\udcxx`, and NaN and infinities as
    text: strict JSON parsers refuse both."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return "".join(_named(c) if "\ud800" <= c <= "\udfff" else c for c in value)
        return value
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(without_surrogates(str(k))): without_surrogates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_surrogates(v) for v in value]
    return value
