"""Turns the text of a log into plain lines: without colours and carriage returns, with folded lines joined again."""

import re

_COLOUR = re.compile(r"(?:\x1b|\\u001b)(?:\[[0-9;:?]*[A-Za-z]|\([AB0])")  # \u001b: as logs in JSON write the escape
_RULE = "#" * 20  # a line of a frame ends with as many at least; TorchRec's frames have 90 or more (MIN_WIDTH)
_LONGEST_ROW = 16  # frames; lists of ranks make rows longer than the frame, and a whole log of full lines is no row


def plain_lines(text: str, word: str) -> str:
    """The text without colours and carriage returns; lines that `fold` or a terminal cut are joined.

    Lines keep their numbers: blank ones follow where some were joined. Lines are joined only where frames of '#' show
    that the log is folded. A text without the word and without frames is given back unchanged, at once.
    """
    if word not in text and _RULE not in text:
        return text
    if "\x1b" in text or "\\u001b" in text:
        text = _COLOUR.sub("", text)
    if "\r" in text:
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").rstrip("\r")
        text = re.sub(r"^[^\n]*\r", "", text, flags=re.MULTILINE)  # as terminals show it: what a progress bar left
    return _joined(text) if f"{_RULE}\n#" in text else text


def _joined(text: str) -> str:
    """The text with the pieces of folded lines put together, from the first folded frame on."""
    lines = text.split("\n")
    joined: list[str] = []
    width = length = at = 0  # width: of a full piece; length: of a whole row with its prefix
    while at < len(lines):
        width, length = _folded_frame(lines, at) or (width, length)
        end = at + 1
        row = lines[at]
        while width and len(lines[end - 1]) == width and end < len(lines):
            if len(row) >= (length if row.endswith("#") else _LONGEST_ROW * length):
                break
            row += lines[end]
            end += 1
        joined += [row, *[""] * (end - at - 1)]
        at = end
    return "\n".join(joined)


def _folded_frame(lines: list[str], at: int) -> tuple[int, int] | None:
    """Width of the pieces and length of the whole, if a frame of several pieces begins in a line; None otherwise."""
    width = len(lines[at])
    if not lines[at].endswith(_RULE):
        return None
    end, length = at + 1, width
    while end < len(lines) and len(lines[end]) == width and not lines[end].strip("#"):
        length, end = length + width, end + 1
    if end < len(lines) and 0 < len(lines[end]) < width and not lines[end].strip("#"):
        length, end = length + len(lines[end]), end + 1
    title = lines[end] if end < len(lines) else ""
    is_opening = len(title) == width and not title.endswith("#")  # the first piece of the title row
    return (width, length) if end > at + 1 and is_opening else None
