"""Plans that `recsmith bench sharding` measured, as the scripts beside this one read them."""

import tarfile
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from recsmith.bench.journal import BenchSettings
from recsmith.bench.sharding import device_of
from recsmith.bench.tasks import draw_tasks, parse_rows
from recsmith.learning.policies.tasks import PlacementTask


@contextmanager
def folder_of(plans: Path) -> Generator[Path]:
    """The folder of a run: `plans` itself, or what an archive of one holds, for as long as the block runs."""
    if plans.is_dir():
        yield plans
        return
    with tempfile.TemporaryDirectory() as unpacked, tarfile.open(plans) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 on
        archive.extractall(unpacked)
        yield Path(unpacked) / "plans"


def tasks_of(settings: BenchSettings, wanted: Sequence[int] | None) -> Iterator[tuple[str, PlacementTask]]:
    """(row, task) of a run; wanted: tasks of every row, counted from 0, or None for all."""
    device = device_of(settings.hardware)
    for row in parse_rows(settings.rows):
        drawn = draw_tasks(row, settings.tasks, settings.seed, device, settings.global_batch).tasks
        yield from ((str(row), task) for place, task in enumerate(drawn) if wanted is None or place in wanted)
