"""Files of a job's id sketches, one per rank and period, in `RUN/watch/`. Imports no torch."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recsmith._types import Ints
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import dump_json, read_json, write_text
from recsmith.streaming.sketches import IdSketch

FOLDER = "watch"
NAME = re.compile(r"ids-step-(\d+)-rank-(\d+)\.json")
KEPT = 4  # newest periods whose files are kept


class SketchFiles:
    """Sketches of this rank's ids by feature, written every `every` steps; files of the newest periods are kept.

    rows: by feature, the number of rows of its table, whose reads are counted in blocks. looks: number of steps from
    one counted batch to the next.
    """

    def __init__(
        self, output: Path, rank: int, features: tuple[str, ...], every: int, rows: Mapping[str, int] | None = None,
        looks: int = 1,
    ) -> None:  # fmt: skip
        self.folder, self.rank, self.features, self.every = output / FOLDER, rank, features, every
        self.rows, self.looks = rows or {}, looks
        self._wrote, self._refused = False, False
        self._begin()

    def _begin(self) -> None:
        self.sketches = {name: IdSketch(blocks_of=self.rows.get(name), every=self.looks) for name in self.features}

    def add(self, name: str, lengths: npt.NDArray[np.int32], values: Ints, sampled: npt.NDArray[np.int32]) -> None:
        """Count all bags of a batch, by lengths, and sketch the ids of the sampled bags.

        lengths: of all bags. values: ids of the sampled bags. sampled: lengths of the sampled bags.
        """
        sketch = self.sketches[name]
        sketch.count(len(lengths), int(lengths.sum(dtype=np.int64)))
        sketch.update(values, sampled)

    def write(self, step: int) -> str | None:
        """Write the sketches since the last call, start new ones, and remove this rank's files of old periods.

        If writing fails, only these sketches are lost, and the job goes on; returns a warning at the first failure.
        """
        raw = {name: sketch.to_raw() for name, sketch in self.sketches.items()}
        self._begin()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(str(self.folder / f"ids-step-{step:012}-rank-{self.rank:05}.json"), dump_json(raw))
            self._forget_old()
        except (OSError, RecSmithError) as error:
            said = None if self._refused else f"sketches of step {step:,} are lost ({error}); training goes on"
            self._refused = True
            return said
        self._wrote, self._refused = True, False
        return None

    def _forget_old(self) -> None:
        mine = sorted(
            file for file in self.folder.iterdir() if (m := NAME.fullmatch(file.name)) and int(m[2]) == self.rank
        )
        for file in mine[:-KEPT]:
            file.unlink(missing_ok=True)

    def finish(self, step: int) -> str | None:
        """Write the sketches of a job shorter than a period; after a full period, an incomplete one is not written."""
        some = not self._wrote and any(sketch.sketched for sketch in self.sketches.values())
        return self.write(step) if some else None


def read_sketches(output: Path, periods: int = 1, before: int = 0) -> tuple[int, dict[str, IdSketch]]:
    """(last step, sketches by feature) of a run, merged over all its ranks and its newest periods.

    periods: number of periods, or fewer if there are not that many. before: number of newest periods to skip.

    Raises:
        UsageError: the run has written no sketches.
        CorruptFile: a file is damaged.
    """
    files = _files(output)
    steps = sorted({step for step, _ in files})
    steps = steps[: len(steps) - before][-periods:]
    merged: dict[str, IdSketch] = {}
    for step, file in files:
        for name, sketch in _read(file) if step in steps else ():
            if name in merged:
                merged[name].merge(sketch)
            else:
                merged[name] = sketch
    return (steps[-1] if steps else 0), merged


def read_periods(output: Path) -> list[tuple[int, dict[str, IdSketch]]]:
    """(last step, sketches by feature) of each stored period of a run, the oldest first, merged over all ranks.

    Raises:
        UsageError: the run has written no sketches.
        CorruptFile: a file is damaged.
    """
    count = len({step for step, _ in _files(output)})
    return [read_sketches(output, 1, before) for before in reversed(range(count))]


def has_sketches(folder: Path) -> bool:
    """Whether a run's output folder has sketches."""
    return any((folder / FOLDER).glob("ids-step-*.json"))


def _files(output: Path) -> list[tuple[int, Path]]:
    named = ((NAME.fullmatch(file.name), file) for file in (output / FOLDER).glob("ids-*.json"))
    found = sorted((int(match[1]), file) for match, file in named if match)
    if not found:
        raise UsageError(
            f"'{output}' has no sketches; train with `watch: auto`, which writes them in time and at the end"
        )
    return found


def _read(file: Path) -> list[tuple[str, IdSketch]]:
    raw = read_json(str(file))
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{file}' holds no sketches; it is damaged: remove it")
    odd = next((name for name, each in raw.items() if not isinstance(each, dict)), None)
    if odd is not None:
        raise CorruptFile(f"'{file}' holds no sketch of '{odd}'; it is damaged: remove it")
    return [(name, IdSketch.from_raw(each, f"'{file}', feature '{name}'")) for name, each in raw.items()]
