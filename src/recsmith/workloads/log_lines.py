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
    width = length = 0  # of a full piece; of a whole row with its prefix
    at = past_frame = 0
    while at < len(lines):
        if at >= past_frame and lines[at].endswith(_RULE):
            past_frame, frame_length = _frame(lines, at)
            if past_frame > at + 1 and _begins_row(lines, past_frame, len(lines[at])):
                width, length = len(lines[at]), frame_length
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


def _frame(lines: list[str], at: int) -> tuple[int, int]:
    """Where a frame that begins in a line ends, and its length; only its last piece may be shorter than the first."""
    width = length = len(lines[at])
    end = at + 1
    while end < len(lines) and len(lines[end]) == width and not lines[end].strip("#"):
        length, end = length + width, end + 1
    if end < len(lines) and 0 < len(lines[end]) < width and not lines[end].strip("#"):
        length, end = length + len(lines[end]), end + 1
    return end, length


def _begins_row(lines: list[str], at: int, width: int) -> bool:
    """Whether a line is the first piece of the title row: full, and without the row's last '#'."""
    return at < len(lines) and len(lines[at]) == width and not lines[at].endswith("#")
