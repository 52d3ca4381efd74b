"""Train several compression methods and factors on a user's data, for a curve of AUC against bytes.

Every training is added to `trainings.jsonl` in the folder as soon as it is done, and is not repeated.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw, decode, dump_json, encode, parse_json, read_json, read_text, write_text
from recsmith.scoring.scores import known_score, mean_within
from recsmith.training.launch.launching import train
from recsmith.training.results.points import CompressionPoint
from recsmith.training.run import Run, run_to_raw
from recsmith.training.systems.stored.compressing import OnProgress, propose, run_workload
from recsmith.workloads import Workload

SCHEMA = "recsmith/compression-curve/1"
WEIGHT, MAP = 4, 4  # bytes of a weight, and of an id in a map
FULL = "full"


@noun
class TrainedSmaller:
    """One training. weight_bytes: of tables and of the layers that combine vectors. map_bytes: of maps of ids."""

    method: str
    factor: float
    seed: int
    auc: float
    weight_bytes: int
    map_bytes: int


def compression_curve(
    run: Run, methods: Sequence[Any], factors: Sequence[float], seeds: int, folder: str,
    on_progress: OnProgress = lambda _: None, **fields: Any,
) -> list[CompressionPoint]:  # fmt: skip
    """Train a run uncompressed, and with every method and factor, once per seed; the curve by method and size.

    folder: trainings that are there already are not repeated. fields: of rules, such as tables and above_rows. A factor
    that a method cannot reach is skipped, and on_progress is told why.

    Raises:
        UsageError: the run has no data.test, or the folder holds trainings of another run.
    """
    if run.data.test is None:
        raise UsageError("the run has no data.test, on which AUC is measured; give it one")
    Path(folder).mkdir(parents=True, exist_ok=True)
    _check_run(run, fields, Path(folder))
    file, workload = Path(folder) / "trainings.jsonl", run_workload(run)
    found = read_trainings(file)
    asked = [(FULL, 1.0), *((method, factor) for method in methods for factor in sorted(set(factors)))]
    cases = [(*case, seed) for seed in range(run.seed, run.seed + seeds) for case in asked]
    wanted = set(cases)
    done = {(each.method, each.factor, each.seed) for each in found}
    for number, (method, factor, seed) in enumerate(cases, 1):
        if (method, factor, seed) in done:
            continue
        on_progress(f"training {number} of {len(cases)}: {method} {factor:g}x, seed {seed}")
        try:
            made = _trained(replace(run, seed=seed), workload, method, factor, Path(folder), fields)
        except _OutOfReach as error:
            on_progress(f"{method} {factor:g}x is left out: {error}")
            continue
        _append(file, made)
        found.append(made)
    return points([each for each in found if (each.method, each.factor, each.seed) in wanted])


def points(found: Sequence[TrainedSmaller]) -> list[CompressionPoint]:
    """Points of the curve: trainings of the same method and factor are averaged over seeds."""
    groups: dict[tuple[str, float], list[TrainedSmaller]] = {}
    for each in found:
        groups.setdefault((each.method, each.factor), []).append(each)
    made: list[CompressionPoint] = []
    for (method, factor), members in groups.items():
        auc, within = mean_within([each.auc for each in members])
        first = members[0]
        made.append(
            CompressionPoint(
                method=method,
                factor=factor,
                weight_bytes=first.weight_bytes,
                map_bytes=first.map_bytes,
                auc=auc,
                auc_within=within,
                seeds=len(members),
            )
        )
    return sorted(made, key=lambda point: (point.method != FULL, point.method, point.factor))


def read_trainings(file: Path) -> list[TrainedSmaller]:
    """The trainings in a file. A last line that was cut off when its process ended is removed from the file."""
    if not file.exists():
        return []
    lines = read_text(str(file)).split("\n")
    if lines[-1]:
        file.write_text("\n".join([*lines[:-1], ""]))
    return [decode(TrainedSmaller, parse_json(line, str(file)), str(file)) for line in lines[:-1]]


def curve_to_raw(curve: Sequence[CompressionPoint]) -> Raw:
    """The curve as plain data."""
    return {"schema": SCHEMA, "points": [encode(point) for point in curve]}


class _OutOfReach(Exception):
    """A method cannot reach a factor."""


def _trained(
    run: Run, workload: Workload, method: Any, factor: float, folder: Path, fields: dict[str, Any]
) -> TrainedSmaller:
    size, maps = sum(table.num_embeddings * table.embedding_dim for table in workload.tables), 0
    output = folder / "run"
    shutil.rmtree(output, ignore_errors=True)
    if method != FULL:
        try:
            made = propose(run, workload, factor, method, str(folder / "maps.safetensors"), **fields)
        except UsageError as error:
            raise _OutOfReach(str(error)) from None
        run, size = made.run, made.compressed.parameters_after
        maps = sum(len(each.numbers) for each in made.maps.values())
    result = train(replace(run, output=str(output), checkpoint=None, plan="auto"))
    if not result["complete"]:
        raise RecSmithError("the training was ended by a signal; the same command goes on with it")
    auc = known_score(result["test"], "auc", "data.test")
    return TrainedSmaller(
        method=method, factor=factor, seed=run.seed, auc=auc, weight_bytes=WEIGHT * size, map_bytes=MAP * maps
    )


def _append(file: Path, made: TrainedSmaller) -> None:
    """Append a training as a line, and sync it to disk before returning."""
    with file.open("a") as opened:
        opened.write(json.dumps(encode(made)) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def _check_run(run: Run, fields: dict[str, Any], folder: Path) -> None:
    """Raise UsageError if a folder holds trainings of another run or other rules; a new folder is marked."""
    mark, now = folder / "run.json", {"run": run_to_raw(run), "words": fields}
    text = dump_json(now)
    if not mark.exists():
        write_text(str(mark), text)
        return
    if read_json(str(mark)) != json.loads(text):
        raise UsageError(f"'{folder}' holds trainings of another run or of other rules; give an empty folder")
