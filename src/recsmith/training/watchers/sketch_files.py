"""Sketches of a job's ids as files of its ranks, a period each: `RUN/watch/`. Imports no torch."""

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recsmith._types import Ints
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import dump_json, parse_json, read_text, write_text
from recsmith.streaming.sketches import IdSketch

FOLDER = "watch"
NAME = re.compile(r"ids-step-(\d+)-rank-(\d+)\.json")
KEPT = 4  # periods


class SketchFiles:
    """Sketches of this rank's ids, by feature; written every so many steps, the newest periods kept."""

    def __init__(self, output: Path, rank: int, features: tuple[str, ...], every: int) -> None:
        self.folder, self.rank, self.features, self.every = output / FOLDER, rank, features, every
        self._begin()

    def _begin(self) -> None:
        self.sketches = {name: IdSketch() for name in self.features}

    def add(self, name: str, lengths: npt.NDArray[np.int32], values: Ints, sampled: npt.NDArray[np.int32]) -> None:
        """Count all bags of a batch, and sketch the sampled ones."""
        sketch = self.sketches[name]
        sketch.count(len(lengths), int(lengths.sum(dtype=np.int64)))
        sketch.update(values, sampled)

    def write(self, step: int) -> None:
        """Write what was sketched since the last time, and begin anew; older periods than the newest few go."""
        self.folder.mkdir(parents=True, exist_ok=True)
        raw = {name: sketch.to_raw() for name, sketch in self.sketches.items()}
        write_text(str(self.folder / f"ids-step-{step:012}-rank-{self.rank:05}.json"), dump_json(raw))
        self._begin()
        mine = sorted(
            file for file in self.folder.iterdir() if (m := NAME.fullmatch(file.name)) and int(m[2]) == self.rank
        )
        for file in mine[:-KEPT]:
            file.unlink(missing_ok=True)


def read_sketches(output: Path, periods: int = 1) -> tuple[int, dict[str, IdSketch]]:
    """(last step, sketches by feature) of a run: of all its ranks and the newest periods together.

    Raises:
        UsageError: the run has written none.
        CorruptFile: a file is damaged.
    """
    folder = output / FOLDER
    found = sorted((int(m[1]), file) for file in folder.glob("ids-*.json") if (m := NAME.fullmatch(file.name)))
    if not found:
        raise UsageError(f"'{output}' has no sketches; train with `watch: auto`, and wait for watch.sketch_every steps")
    steps = sorted({step for step, _ in found})[-periods:]
    merged: dict[str, IdSketch] = {}
    for step, file in found:
        if step not in steps:
            continue
        raw = parse_json(read_text(str(file)), str(file))
        if not isinstance(raw, dict):
            raise CorruptFile(f"'{file}' holds no sketches; it is damaged: remove it")
        for name, each in raw.items():
            sketch = IdSketch.from_raw(each, f"'{file}', feature '{name}'")
            if name in merged:
                merged[name].merge(sketch)
            else:
                merged[name] = sketch
    return steps[-1], merged
