"""The columns of measurements: name, type, unit and meaning of each. docs/measurements.md prints this list.

Meanings are written into parquet files, so they are worded for readers of these files.

Legend: T tables of a case, W ranks.
"""

import platform
from datetime import UTC, datetime
from typing import Literal, cast

from recsmith._types import noun
from recsmith.measuring.journal import Row
from recsmith.workloads.access import NUM_REUSE_BINS
from recsmith.workloads.optimizers import OPTIMIZERS

SCHEMA = "recsmith/measurements/1"
MAY_BE_EMPTY = (
    "forward_s", "backward_s", "forward_median_s", "backward_median_s", "forward_wall_s", "backward_wall_s", "spread",
    "probe_s", "probe_moved", "message",
)  # where a case failed  # fmt: skip
ABOVE_ZERO = (
    "forward_s",
    "backward_s",
    "median_s",
)  # seconds of rows whose status is ok; relative errors divide by them
ALLOWED = {
    "status": ("ok", "out_of_memory", "failed", "interrupted"),
    "direction": ("forward", "backward"),
    "backend": ("gloo", "nccl", "simulated"),
    "optimizer": tuple(OPTIMIZERS),
    "data_type": ("fp32", "fp16", "bf16", "int8"),
}
ADDED = {"blocks": 1}  # columns that older measurements lack, with the value that holds for those
LEAST = {"blocks": 1}  # lower limits of whole numbers that are never 0
LONGEST_TEXT = 2**16  # characters of a value, such as the message of a failed case
LARGEST = 2**53  # limit of numbers; whole ones below it are exact as floating-point numbers
LEAST_S = 1e-12  # shortest time in seconds above 0, below what any clock measures
MeasurementKind = Literal["compute", "comm"]
ColumnType = Literal["int64", "float64", "string", "bool", "list<int64>", "list<float64>"]


@noun
class Column:
    """A column of a row of measurements; it is empty if the row has no value."""

    name: str
    type: ColumnType
    unit: str
    meaning: str

    @property
    def items(self) -> str:
        """Type of a value, or of each value of a list."""
        return self.type.removeprefix("list<").removesuffix(">")

    @property
    def length(self) -> tuple[int, str] | None:
        """(17, 'tables') for lists of 17 values for each table; None if the column has one value per row."""
        if self.items == self.type:
            return None
        return (NUM_REUSE_BINS if "(17 T)" in self.meaning else 1), ("ranks" if "(W)" in self.meaning else "tables")

    @property
    def may_be_empty(self) -> bool:
        """Whether a row may lack a value."""
        return self.name in MAY_BE_EMPTY


def _columns(text: str) -> tuple[Column, ...]:
    """The columns of lines such as 'ids | int64 | count | of all tables'."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return tuple(
        Column(name=name, type=cast(ColumnType, type_), unit=unit, meaning=meaning)
        for name, type_, unit, meaning in rows
    )


_WHICH = """
position        | int64         | count   | place in the run, from 0; no two rows share one{sample}
seed            | int64         | -       | of the cases
number          | int64         | -       | of the case: seed, number and scale give it again, ids included
visit           | int64         | count   | {visit}
"""
_VISITED = _WHICH.strip().format(
    sample="\nsample          | int64         | count   | the rows of one sample are its visits",
    visit="of the sample, from 0; two samples of one number show the noise",
)
_EXCHANGED = _WHICH.strip().format(sample="", visit="how often the case was measured before")
_ORIGIN = """
elapsed_s       | float64       | s       | wall clock of the whole row, drawing and probe included
hardware        | string        | -       | as on the command line
device          | string        | -       | processor or GPU, with its caches
versions        | string        | -       | recsmith, Python, PyTorch, FBGEMM
date            | string        | -       | when it was measured, UTC, ISO 8601
"""
COMPUTE = _columns(f"""{_VISITED}
scale           | string        | -       | how large cases get (hardware/case.py)
optimizer       | string        | -       | sgd, adagrad, rowwise_adagrad or adam, fused into backward
data_type       | string        | -       | of the weights: fp32 or fp16; states and outputs are fp32
batch_size      | int64         | bags    | bags of every table
blocks          | int64         | count   | row blocks of the larger tables that these are blocks of; 1 of whole tables
tables          | int64         | count   | T, in one fused kernel
ids             | int64         | count   | of all tables
rows            | list<int64>   | count   | of each table (T)
dim             | list<int64>   | columns | of each table (T)
pooling_factor  | list<float64> | ids/bag | of each table (T); bags of a table differ by at most one id
zipf            | list<float64> | -       | exponent of each table (T); hot rows are scattered over the table
lookups         | list<int64>   | count   | ids of each table (T)
unique_rows     | list<int64>   | count   | different rows read in each table (T)
reuse_bins      | list<int64>   | rows    | rows read 1, 2, 3-4, 5-8 ... >32768 times, 17 for each table (17 T)
status          | string        | -       | ok, out_of_memory, failed, interrupted
forward_s       | float64       | s       | fastest forward (CPU: process CPU time; CUDA: between events)
backward_s      | float64       | s       | fastest backward with the update of weights and states
forward_median_s | float64      | s       | median forward
backward_median_s | float64     | s       | median backward
forward_wall_s  | float64       | s       | median forward by the wall clock
backward_wall_s | float64       | s       | median backward by the wall clock
repetitions     | int64         | count   | timed, after one that is not
spread          | float64       | ratio   | median / fastest - 1 of forward and backward together
probe_s         | float64       | s       | a fixed case before and after, mean of the two
probe_moved     | float64       | ratio   | how far the two are apart
message         | string        | -       | what went wrong, where something did
{_ORIGIN.strip()}""")
COMM = _columns(f"""{_EXCHANGED}
ranks           | int64         | count   | W
backend         | string        | -       | gloo, nccl or simulated
oversubscribed  | bool          | -       | more ranks than cores: the scheduler is measured
direction       | string        | -       | forward: pooled rows go to who asked; backward: gradients come back
batch_size      | int64         | bags    | samples of each rank
width           | list<int64>   | columns | summed over the tables of each rank (W)
skew_s          | list<float64> | s       | how much later than the first each rank starts (W)
sent_bytes      | list<int64>   | bytes   | from each rank to others (W)
received_bytes  | list<int64>   | bytes   | by each rank from others (W)
status          | string        | -       | ok
fastest_s       | list<float64> | s       | of each rank, from its own start to its end (W)
median_s        | list<float64> | s       | of each rank, the median (W)
repetitions     | int64         | count   | timed, after one that is not
{_ORIGIN.strip()}""")
COLUMNS: dict[MeasurementKind, tuple[Column, ...]] = {"compute": COMPUTE, "comm": COMM}


def origin_columns(elapsed_s: float, hardware: str, device: str, versions: str) -> Row:
    """The columns that say where, when and with which versions a row was measured."""
    return {
        "elapsed_s": elapsed_s,
        "hardware": hardware,
        "device": device,
        "versions": f"{versions}, Python {platform.python_version()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
