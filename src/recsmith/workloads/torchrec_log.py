"""Finds the report of TorchRec's planner in a job's log, whatever the job's logger and launcher add to the lines.

EmbeddingStats.log (torchrec 1.8, distributed/planner/stats.py) calls the logger once per row. So each row of a report
has the prefix of the job's logger and launcher, and rows of other ranks may be interleaved. A report is a frame of '#',
a title row, rows that begin and end with '#', and the frame again; its row 'Batch Size' follows the table of
parameters.
"""

import re
import warnings
from itertools import islice

from recsmith.errors import CorruptFile
from recsmith.workloads.torchrec_report import BATCH_ROW, ReportRows

_TITLE = "--- Planner Statistics ---"
_TITLE_ROW = re.compile(rf"#[ \t]*{_TITLE}")
_BARE_TITLE_ROW = re.compile(rf"^{_TITLE_ROW.pattern}", re.MULTILINE)
_BARE_TITLE_WITHIN = 20_000  # characters; a text that begins with '#' is a bare report if its title is within these
_OWN_SCHEMA = re.compile(r"""^[{ \t]{0,80}["']?schema["']?[ \t]*:[ \t]*["']?recsmith/""", re.MULTILINE)
_OWN_START = re.compile(
    r"""(?:[ \t]*(?:#[^\n]*)?\n)*+(?:\{|---|["']?\w+["']?[ \t]*:(?:\s|$))"""
)  # comments, then a key
_LOG_NAMES = (".log", ".out", ".err", ".txt")
# characters; a larger text without a key of RecSmith's files is treated as a log, as YAML would take minutes
_LARGE = 2**20
_LONGEST_PREFIX = 1000  # characters before a row; bounds the work on one line; launchers write below 200
# lines between two rows, as with 4,096 ranks or more; after more lines, an unfinished report has ended
_LONGEST_GAP = 20_000
_PREFIX_HASHES = 16  # most '#' in a prefix; bounds the work on one line
_TIME = re.compile(
    r"\d{4}[-/.]\d\d[-/.]\d\d|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?|(?<=[IWEF])\d{4}(?= )|\d{9,}(?:\.\d+)?"
)  # dates, times of day, the month and day of glog, seconds since 1970
_ROW_START = re.compile(r"(?<!#)#")
_NUMBER = re.compile(r" *\d+")
_COLOUR = re.compile(r"(?:\x1b|\\u001b)(?:\[[0-9;:?]*[A-Za-z]|\([AB0])")  # \u001b: how JSON logs write the escape
_RULE = "#" * 20  # a line of a frame ends with at least this; TorchRec's frames have 90 or more (MIN_WIDTH)
_CUT_ROW = re.compile(r"^[^#\n]*#[ \t]*Parameter Info:[^#\n]*\n", re.MULTILINE)
_FRAME_BEFORE = re.compile(rf"^.*{_RULE}[ \t]*$", re.MULTILINE)
# in frame lengths; lists of ranks make rows longer than the frame, but a whole log of full lines is no row
_LONGEST_ROW = 16


def find_report(text: str, source: str) -> str | None:
    """The rows of the planner report that a text contains, without prefixes; None if it contains none.

    If the reports differ, the last is used, with a warning. A bare report is returned unchanged.

    Raises:
        CorruptFile: the report or its lines are cut off, or its rows are mixed with those of another report.
    """
    if _is_bare(text):
        _refuse_incomplete(text, source)
        return text
    if _OWN_START.match(text) and _OWN_SCHEMA.search(text):
        return None  # a RecSmith file, even if its comments contain a report
    lines = plain_lines(text, _TITLE)
    reports = _Scan(_TIME).read(lines) if _TITLE in lines else []
    if reports and all(report.trouble() for report in reports):
        looser = _Scan(_NUMBER).read(lines)
        reports = reports if all(report.trouble() for report in looser) else looser
    if not reports or reports[-1].trouble():
        _refuse_cut_lines(lines, source)
    return "\n".join(_last(reports, source).rows) + "\n" if reports else None


def _is_bare(text: str) -> bool:
    """Whether a text starts with its only report, and has no other lines up to the report's batch size."""
    start = text.lstrip()[:_BARE_TITLE_WITHIN]
    if start[:1] != "#" or "\r" in text or text.count(_TITLE) > 1:
        return False
    batch = BATCH_ROW.search(text)
    if batch is None or _BARE_TITLE_ROW.search(start) is None:
        return False
    return re.search(r"^[^#]", text[: batch.start()].lstrip(), re.MULTILINE) is None


def _refuse_incomplete(text: str, source: str) -> None:
    """Raise CorruptFile for a bare report with fewer tables than it counts, as for reports in a log."""
    rows = [line for line in text.splitlines() if line.strip()]
    report = ReportRows(first=1, last=len(rows), rows=rows)
    if report.trouble():
        raise CorruptFile(_refusal(source, report))


def _refuse_cut_lines(text: str, source: str) -> None:
    """Raise CorruptFile if a logger or log shipper cut the report's lines, so that rows lack their closing '#'."""
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
    """The last report, with a warning if other reports differ from it."""
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
    """Finds all reports of a text in one pass; lines are examined only while a report is unfinished.

    volatile: pattern masked in the prefixes of rows: times, so that the rest distinguishes the ranks of a job; or all
        numbers, for loggers that count lines or milliseconds.
    """

    def __init__(self, volatile: re.Pattern[str]) -> None:
        self.volatile = volatile
        self.reports: list[ReportRows] = []  # all reports, in the order of their titles
        self.unfinished: dict[str, ReportRows] = {}  # unfinished reports, by the masked prefix of their rows
        self.newest = 0  # number of the last line that was a row

    def read(self, text: str) -> list[ReportRows]:
        """The reports, in the order of their titles."""
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
        """Add a line to its report if it is a row, start a report if it is a title, or skip it."""
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
    """A row up to its closing '#', after which structured logs continue."""
    end = text.rfind("#")
    return text[: end + 1] if end else text.rstrip()


# --- logs without a report ----------------------------------------------------------------------------------------


def refuse_log(text: str, source: str, keys: str) -> None:
    """Raise CorruptFile for a log without a report, before it is parsed as YAML, which would be slow.

    keys: names separated by '|', one of which is a key of every JSON or YAML file of the wanted kind.

    Raises:
        CorruptFile: the source is large or has the name of a log, and has none of the keys.
    """
    if source.endswith(_LOG_NAMES):
        is_json = text.lstrip()[:1] == "{"
    elif len(text) > _LARGE and not source.lower().endswith((".csv", ".json")) and text.lstrip()[:1] != "{":
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
    """The text without colours and carriage returns; lines that `fold` or a terminal split are joined.

    Lines keep their numbers: blank lines replace those that were joined to another. Lines are joined only if frames of
    '#' show that the log is folded. A text without the word and without frames is returned unchanged, at once.
    """
    if word not in text and _RULE not in text:
        return text
    if "\x1b" in text or "\\u001b" in text:
        text = _COLOUR.sub("", text)
    if "\r" in text:
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").rstrip("\r")
        # as terminals show it: only the last state of a progress bar
        text = re.sub(r"^[^\n]*\r", "", text, flags=re.MULTILINE)
    return _joined(text) if f"{_RULE}\n#" in text else text


def _joined(text: str) -> str:
    """The text with the pieces of folded lines joined, starting at the first folded frame."""
    lines = text.split("\n")
    joined: list[str] = []
    width = length = 0  # width of a full piece; length of a whole row with its prefix
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
    """End and length of the frame that begins in a line; only its last piece may be shorter than the first."""
    width = length = len(lines[at])
    end = at + 1
    while end < len(lines) and len(lines[end]) == width and not lines[end].strip("#"):
        length, end = length + width, end + 1
    if end < len(lines) and 0 < len(lines[end]) < width and not lines[end].strip("#"):
        length, end = length + len(lines[end]), end + 1
    return end, length


def _begins_row(lines: list[str], at: int, width: int) -> bool:
    """Whether a line is the first piece of the title row: of full width, and without the row's last '#'."""
    return at < len(lines) and len(lines[at]) == width and not lines[at].endswith("#")
