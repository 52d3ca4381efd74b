"""Finds the report of TorchRec's planner in the log of a job, whatever the job's logger and launcher write around it.

EmbeddingStats.log (torchrec 1.8, distributed/planner/stats.py) calls the logger once a row. So each row of a report has
the prefix of the job's logger and launcher, and rows of other ranks may stand between. A report is a frame of '#', a
title row, rows that begin and end with '#', and the frame again; its row 'Batch Size' follows the table of parameters.
"""

import re
import warnings
from itertools import islice

from recsmith.errors import CorruptFile
from recsmith.workloads.torchrec_report import BATCH_ROW, ReportRows

_TITLE = "--- Planner Statistics ---"
_TITLE_ROW = re.compile(rf"#[ \t]*{_TITLE}")
_BARE_TITLE_ROW = re.compile(rf"^{_TITLE_ROW.pattern}", re.MULTILINE)
_BARE_TITLE_WITHIN = 20_000  # characters; a text that begins with '#' is a bare report if its title comes that early
_OWN_SCHEMA = re.compile(r"""^[{ \t]{0,80}["']?schema["']?[ \t]*:[ \t]*["']?recsmith/""", re.MULTILINE)
_OWN_START = re.compile(
    r"""(?:[ \t]*(?:#[^\n]*)?\n)*+(?:\{|---|["']?\w+["']?[ \t]*:(?:\s|$))"""
)  # comments, then a key
_LOG_NAMES = (".log", ".out", ".err", ".txt")
_LARGE = 2**20  # characters; a larger text without a key of its own form is called a log, as YAML would take minutes
_LONGEST_PREFIX = 1000  # characters before a row, bounds the work on one line; launchers write below 200
_LONGEST_GAP = 20_000  # lines between rows, as of 4,096 ranks and others; after more, an unfinished report has ended
_PREFIX_HASHES = 16  # '#' that a prefix may hold, for the same reason
_TIME = re.compile(
    r"\d{4}[-/.]\d\d[-/.]\d\d|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?|(?<=[IWEF])\d{4}(?= )|\d{9,}(?:\.\d+)?"
)  # dates, times of day, the month and day of glog, seconds since 1970
_ROW_START = re.compile(r"(?<!#)#")
_NUMBER = re.compile(r" *\d+")
_COLOUR = re.compile(r"(?:\x1b|\\u001b)(?:\[[0-9;:?]*[A-Za-z]|\([AB0])")  # \u001b: as logs in JSON write the escape
_RULE = "#" * 20  # a line of a frame ends with as many at least; TorchRec's frames have 90 or more (MIN_WIDTH)
_CUT_ROW = re.compile(r"^[^#\n]*#[ \t]*Parameter Info:[^#\n]*\n", re.MULTILINE)
_FRAME_BEFORE = re.compile(rf"^.*{_RULE}[ \t]*$", re.MULTILINE)
_LONGEST_ROW = 16  # frames; lists of ranks make rows longer than the frame, and a whole log of full lines is no row


def find_report(text: str, source: str) -> str | None:
    """The rows of the planner report that a text holds, without prefixes; None where it holds none.

    Of several different reports the last is taken, with a warning. A bare report is given back as it is.

    Raises:
        CorruptFile: the report or its lines are cut off, or its rows are mixed with those of another one.
    """
    if _is_bare(text):
        _refuse_incomplete(text, source)
        return text
    if _OWN_START.match(text) and _OWN_SCHEMA.search(text):
        return None  # a file of RecSmith, whatever its comments hold
    lines = plain_lines(text, _TITLE)
    reports = _Scan(_TIME).read(lines) if _TITLE in lines else []
    if reports and all(report.trouble() for report in reports):
        looser = _Scan(_NUMBER).read(lines)
        reports = reports if all(report.trouble() for report in looser) else looser
    if not reports or reports[-1].trouble():
        _refuse_cut_lines(lines, source)
    return "\n".join(_last(reports, source).rows) + "\n" if reports else None


def _is_bare(text: str) -> bool:
    """Whether a text begins with a report that is its only one and has no other lines up to its batch size."""
    start = text.lstrip()[:_BARE_TITLE_WITHIN]
    if start[:1] != "#" or "\r" in text or text.count(_TITLE) > 1:
        return False
    batch = BATCH_ROW.search(text)
    if batch is None or _BARE_TITLE_ROW.search(start) is None:
        return False
    return re.search(r"^[^#]", text[: batch.start()].lstrip(), re.MULTILINE) is None


def _refuse_incomplete(text: str, source: str) -> None:
    """Refuse a bare report that shows fewer tables than it counts, as those within a log are refused."""
    rows = [line for line in text.splitlines() if line.strip()]
    report = ReportRows(first=1, last=len(rows), rows=rows)
    if report.trouble():
        raise CorruptFile(_refusal(source, report))


def _refuse_cut_lines(text: str, source: str) -> None:
    """Refuse a report whose lines a logger or shipper cut: its rows lack the '#' that closes each."""
    row = _CUT_ROW.search(text)
    frame = _FRAME_BEFORE.search(text, max(0, row.start() - _LONGEST_GAP), row.start()) if row else None
    if row is not None and frame is not None:
        raise CorruptFile(
            f"'{source}' holds a report of TorchRec's planner whose lines were cut at {len(frame[0].rstrip())} "
            "characters, so that its rows lack their ends ('#'); give the log as the job wrote it, or raise the limit "
            "of what ships it"
        )


def _refusal(source: str, report: ReportRows) -> str:
    return f"'{source}': the planner report that begins in line {report.first} {report.trouble()}"


def _last(reports: list[ReportRows], source: str) -> ReportRows:
    """The last report, with a warning where others differ from it."""
    last = reports[-1]
    if last.trouble():
        raise CorruptFile(_refusal(source, last))
    broken = sum(1 for report in reports if report.trouble())
    different = len({report.read_part() for report in reports if not report.trouble()}) + broken
    if different > 1:
        incomplete = f" ({broken} of them incomplete)" if broken else ""
        warnings.warn(
            f"'{source}' holds {different} different planner reports{incomplete}; the last, which begins in line "
            f"{last.first}, is read",
            stacklevel=4,
        )
    return last


# --- rows and their prefixes --------------------------------------------------------------------------------------


class _Scan:
    """Finds all reports of a text in one pass; lines are looked at only while a report is unfinished.

    volatile: what is masked in the prefixes of rows: times, so that the rest tells the ranks of a job apart, or all
    numbers, for loggers that count lines or milliseconds.
    """

    def __init__(self, volatile: re.Pattern[str]) -> None:
        self.volatile = volatile
        self.reports: list[ReportRows] = []  # in order of their titles
        self.unfinished: dict[str, ReportRows] = {}  # by the masked prefix of their rows
        self.newest = 0  # number of the last line that was a row

    def read(self, text: str) -> list[ReportRows]:
        """The reports, in order of their titles."""
        start, number = 0, 1
        while start < len(text):
            if number - self.newest > _LONGEST_GAP:
                self.unfinished.clear()
            if not self.unfinished:
                title = text.find(_TITLE, start)
                if title < 0:
                    break
                line_start = text.rfind("\n", start, title) + 1 or start
                number += text.count("\n", start, line_start)
                start = line_start
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            self.take(text[start:end], number)
            start, number = end + 1, number + 1
        return self.reports

    def take(self, line: str, number: int) -> None:
        """Add a line to the report that it belongs to, or begin one, or pass it over."""
        title = _TITLE_ROW.search(line) if _TITLE in line else None
        if title and title.start() <= _LONGEST_PREFIX:
            report = ReportRows(number, number, [_row(line[title.start() :])])
            self.reports.append(report)
            self.unfinished[self.volatile.sub("0", line[: title.start()])] = report
            self.newest = number
            return
        for found in islice(_ROW_START.finditer(line, 0, _LONGEST_PREFIX), _PREFIX_HASHES):
            key = self.volatile.sub("0", line[: found.start()])
            if key in self.unfinished:
                self._add(key, _row(line[found.start() :]), number)
                return

    def _add(self, key: str, row: str, number: int) -> None:
        report = self.unfinished[key]
        report.rows.append(row)
        report.last = self.newest = number
        if len(row) > 1 and not row.strip("#"):  # the frame
            del self.unfinished[key]


def _row(text: str) -> str:
    """A row up to its closing '#': structured logs go on behind it."""
    end = text.rfind("#")
    return text[: end + 1] if end else text.rstrip()


# --- logs without a report ----------------------------------------------------------------------------------------


def refuse_log(text: str, source: str, keys: str) -> None:
    """Refuse a log without a report at once, before it is taken for YAML, which would be slow to parse.

    keys: names, parted by '|', one of which is a key of every JSON or YAML file that is wanted.

    Raises:
        CorruptFile: the source is named as logs are or large, and has none of the keys.
    """
    if source.endswith(_LOG_NAMES):
        is_json = text.lstrip()[:1] == "{"
    elif len(text) > _LARGE and not source.endswith((".csv", ".json")) and text.lstrip()[:1] != "{":
        is_json = False
    else:
        return
    if not re.search(rf'"(?:{keys})"' if is_json else rf"^[^\w\n]{{0,80}}(?:{keys})\b", text, re.MULTILINE):
        raise CorruptFile(
            f"'{source}' has no `schema` and, as a log, no planner report (no '{_TITLE}'); TorchRec's planner logs at "
            "level INFO, so let the job log that level"
        )


# --- plain lines -----------------------------------------------------------------------------------------------------


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
