"""What resharding did to the tables of a checkpoint: as text for people, and as plain data for `--format json`."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith.adapters.reshard.report import Resharded, TableChange
from recsmith.files import Raw, encode
from recsmith.reports.layout import add_first, grid, line
from recsmith.units import counted, format_size

SCHEMA = "recsmith/resharded/1"
MOST_TABLES = 40  # rows: about a screen; tables whose state changed come first
MEANINGS = {
    "exact": "bit for bit",
    "replicated": "replicated: columns were split, and each part begins with the whole's number of a row",
    "averaged": "averaged: columns were merged, and take the mean of their numbers of a row, by width",
    "reset": "reset: another kind of optimizer keeps it now, and it begins anew",
    "new": "new: of tables that were added",
}


def reshard_report(report: Resharded) -> RenderableType:
    """What was written, what is exact and what is not, and each table."""
    states = Counter(state.change for table in report.tables for state in table.states)
    resumed = f" ({format_size(report.resumed_bytes)} by an earlier run)" if report.resumed_bytes else ""
    lines = [
        line("written", f"{report.output}: {format_size(report.written_bytes)}{resumed}"),
        line("weights", "bit for bit"),
        *(line("state", f"{counted(states[change], 'entry', 'entries')} {MEANINGS[change]}") for change in MEANINGS
          if states[change]),
        line("other", f"{counted(report.untouched, 'entry', 'entries')} untouched, dense parameters among them"),
        line("plan", f"fingerprint {report.fingerprint[:12]}"),
    ]  # fmt: skip
    made = grid(left=("table", "before", "after", "state"), right=("bytes",))
    ordered = sorted(report.tables, key=lambda each: (each.exact, each.before is not None and each.after is not None))
    add_first(made, [_row(each) for each in ordered], MOST_TABLES)
    return Group(*lines, made)


def _row(change: TableChange) -> Sequence[str]:
    states = ", ".join(f"{state.name} {state.change}" for state in change.states) or "-"
    return change.table, change.before or "(added)", change.after or "(removed)", states, format_size(change.bytes)


def reshard_to_raw(report: Resharded) -> Raw:
    """Plain data of schema recsmith/resharded/1."""
    return {"schema": SCHEMA, **encode(report)}
