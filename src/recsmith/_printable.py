"""Text that is safe to print: no control characters, which would move a terminal's cursor, colour it, or title it."""

import re

# C0 but for tab and newline, DEL and C1; separators of lines; marks that turn the direction of text; surrogates
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAKS = {ord("\n"): r"\n", ord("\t"): r"\t"}


def printable(text: str) -> str:
    r"""The text with every control character but tabs and newlines written out, such as `\x1b`."""
    return _CONTROL.sub(_written_out, text)


def one_line(text: str) -> str:
    r"""The text as it may stand in a cell or behind a label: tabs and newlines are written out, too."""
    return printable(text).translate(_LINE_BREAKS)


def printable_json(text: str) -> str:
    r"""JSON with the same characters written as JSON's escapes (`\u009b`): the same data, safe to print."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
