"""Sweeps read back from their files: points, knees, and the fewest devices for a step."""

from recsmith._types import noun
from recsmith.analyses.scaling import Fewest, Fixed, Knee, Point
from recsmith.files import Raw, check_schema, decode
from recsmith.reports.comparisons import SWEEP_SCHEMA


@noun
class WrittenSweep:
    """A sweep without its plans, as `recsmith sweep -o FILE.json` writes it (schema recsmith/sweep/1)."""

    planner: str
    cost_model: str
    space: str
    fixed: Fixed
    left: int
    knees: tuple[Knee, ...]
    points: tuple[Point, ...]
    fewest: tuple[Fewest, ...] = ()


def sweep_from_raw(raw: Raw, source: str) -> WrittenSweep:
    """A sweep from its plain data. source: the file, for errors.

    Raises:
        CorruptFile: the data is not a sweep.
    """
    return decode(WrittenSweep, check_schema(raw, SWEEP_SCHEMA, source), source)
