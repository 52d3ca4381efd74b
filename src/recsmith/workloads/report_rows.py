"""The rows of one report of TorchRec's planner: whether they are whole, and whether they equal another's.

EmbeddingStats.log (torchrec 1.8, distributed/planner/stats.py) writes the table under 'Parameter Info', a blank row and
'Batch Size', then 'Compute Kernels Count', whose counts add up to the number of tables.
"""

import re
from dataclasses import dataclass, field

BATCH_ROW = re.compile(r"^# Batch Size:.*#\s*$", re.MULTILINE)


@dataclass
class ReportRows:
    """The rows of one report without their prefixes; first (the title) and last are lines of the log, from 1."""

    first: int
    last: int
    rows: list[str] = field(default_factory=list[str])

    @property
    def cells(self) -> list[str]:
        """The rows without their frame."""
        return [row.strip("# \t") for row in self.rows]

    def trouble(self) -> str:
        """What makes the report unreadable, '' where nothing does."""
        if not any(BATCH_ROW.match(row) for row in self.rows):
            return f"ends in line {self.last}, before its 'Batch Size'; give the whole log"
        cells = self.cells
        batches = [at for at, cell in enumerate(cells) if cell.startswith("Batch Size:")]
        tables = [at for at, cell in enumerate(cells) if cell.startswith("Parameter Info:")]
        body = cells[tables[0] + 1 : batches[0]] if tables else [""]
        whole = len(batches) == 1 and len(tables) <= 1 and _is_table(body)
        if not whole:
            return f"is mixed with rows of another up to line {self.last}; give the log of one rank"
        counted = _tables_counted(cells)
        if tables and counted not in (None, len(body) - 3):
            return f"shows {len(body) - 3} of its {counted} tables up to line {self.last}; rows are missing or garbled"
        return ""

    def read_part(self) -> tuple[str, ...]:
        """The rows up to the batch size but for the planner's own seconds: equal for copies of one report."""
        cells = self.cells
        end = next((at for at, cell in enumerate(cells) if cell.startswith("Batch Size:")), len(cells))
        return tuple(cell for cell in cells[: end + 1] if not cell.startswith("--- Evaluated"))


def _is_table(body: list[str]) -> bool:
    """Whether rows are those of one table (two cells or more) and the blank one after it."""
    return body[-1:] == [""] and all(re.search(r"\s{2,}", cell) for cell in body[:-1])


def _tables_counted(cells: list[str]) -> int | None:
    """How many tables the report's 'Compute Kernels Count' tells of; None where it tells nothing."""
    if "Compute Kernels Count:" not in cells:
        return None
    at = cells.index("Compute Kernels Count:") + 1
    end = cells.index("", at) if "" in cells[at:] else None  # without an end, further rows may be missing
    counts = [re.fullmatch(r"\w+: (\d+)", cell) for cell in cells[at:end]]
    return sum(int(count[1]) for count in counts if count) if end is not None and all(counts) else None
