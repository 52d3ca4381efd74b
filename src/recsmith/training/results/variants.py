"""`recsmith bench train`: compares variants of a run on the same data and seeds.

A variant is a name with settings over the base run, such as {"fp16": ["comms.forward=fp16"]}. Every variant is trained
once for each seed, in its own folder; a training that exists already is not repeated.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Source, decode, read_raw, source_text
from recsmith.jobs.log_lines import LOG, logged, logged_number, speed_over
from recsmith.scoring.scores import known_score, mean_within
from recsmith.training.launch.launching import train
from recsmith.training.results.measured import keep_reached, reached_before, told
from recsmith.training.run import Run, load_run

SCHEMA = "recsmith/train-bench/1"


@noun
class TrainBench:
    """A comparison: a base run, the settings of each variant by name, and the seeds."""

    run: str
    variants: dict[str, tuple[str, ...]]
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        """Check that there is something to compare."""
        if not self.variants or not self.seeds:
            raise UsageError("a comparison has at least one variant and one seed")


@noun
class TrainedOnce:
    """Times, bytes and scores of one training of a variant; steps before the first log line are left out of times."""

    samples_per_s: float
    data_s: float
    forward_s: float
    backward_s: float
    sent_bytes: float
    peak_bytes: int
    auc: float
    ne: float


@noun
class VariantRow:
    """A variant: medians of times and bytes over seeds, and means of scores with half their 95 % intervals.

    faster: samples/s relative to the first variant with the same seed: (least, median, most) over seeds; None for the
    first variant.
    """

    name: str
    samples_per_s: float
    data_s: float
    forward_s: float
    backward_s: float
    sent_bytes: float
    peak_bytes: int
    auc: float
    auc_within: float | None
    ne: float
    ne_within: float | None
    faster: tuple[float, float, float] | None = None


def load_bench(source: Source) -> TrainBench:
    """The comparison that a YAML or JSON file describes; its run's path is relative to the file."""
    name = source_text(source, "a comparison")
    made = decode(TrainBench, read_raw(name, SCHEMA), name)
    return replace(made, run=str(Path(name).parent / made.run))


def bench_train(
    bench: TrainBench, folder: Source, *, on_progress: Callable[[str], object] | None = None
) -> list[VariantRow]:
    """Train every variant for every seed, seed after seed, so that disturbances of the machine affect all variants.

    Every other seed trains the variants in the opposite order, so that none always follows the same other one.

    Raises what `train` raises.
    """
    base, target = load_run(bench.run), Path(source_text(folder, "a folder"))
    if base.data.test is None:
        raise UsageError(
            f"'{bench.run}' names no data.test; scores of a comparison are of data that was not trained on"
        )
    found: dict[str, list[TrainedOnce]] = {name: [] for name in bench.variants}
    for number, seed in enumerate(bench.seeds):
        for name, settings in list(bench.variants.items())[:: -1 if number % 2 else 1]:
            if on_progress is not None:
                on_progress(f"{name}, seed {seed}")
            found[name].append(_trained(base, (*settings, f"seed={seed}"), target / f"{name}-{seed}"))
    first = next(iter(found.values()))
    return [_row(name, runs, None if runs is first else first) for name, runs in found.items()]


def _trained(base: Run, settings: Sequence[str], folder: Path) -> TrainedOnce:
    """A training, or its stored results if it was done before."""
    wanted = told(base) | {"settings": list(settings)}
    found = reached_before(folder, wanted, TrainedOnce)
    if found is None:
        found = _measured(train(base, settings=(*settings, f"output={folder}", "checkpoint=null")), folder)
        keep_reached(folder, wanted, found)
    return found


def _measured(result: Mapping[str, Any], folder: Path) -> TrainedOnce:
    """The results of a training; RecSmithError if a signal ended it."""
    if not result["complete"]:
        raise RecSmithError(f"'{folder}' was asked to end; trainings that are done are kept: start the command again")
    lines = logged(folder / LOG, "train")
    timed = lines[1:] or lines
    if not timed:
        raise UsageError("a run is shorter than metrics.every steps, so no line tells its speed; lower metrics.every")

    def mean(name: str) -> float:
        return statistics.fmean(logged_number(folder / LOG, line, name) for line in timed)

    return TrainedOnce(
        samples_per_s=speed_over(folder / LOG, timed),
        **{name: mean(name) for name in ("data_s", "forward_s", "backward_s")},
        sent_bytes=result["sent_bytes"],
        peak_bytes=result["peak_bytes"],
        auc=known_score(result["test"], "auc", "data.test"),
        ne=known_score(result["test"], "ne", "data.test"),
    )


def _row(name: str, runs: Sequence[TrainedOnce], beside: Sequence[TrainedOnce] | None) -> VariantRow:
    middle = {
        key: statistics.median(getattr(run, key) for run in runs)
        for key in ("samples_per_s", "data_s", "forward_s", "backward_s", "sent_bytes")
    }
    auc, auc_within = mean_within([run.auc for run in runs])
    ne, ne_within = mean_within([run.ne for run in runs])
    return VariantRow(
        name=name, **middle, peak_bytes=max(run.peak_bytes for run in runs), auc=auc, auc_within=auc_within, ne=ne,
        ne_within=ne_within, faster=None if beside is None else _faster(runs, beside),
    )  # fmt: skip


def _faster(runs: Sequence[TrainedOnce], beside: Sequence[TrainedOnce]) -> tuple[float, float, float]:
    """Ratios of samples/s by seed: (least, median, most)."""
    ratios = [run.samples_per_s / other.samples_per_s for run, other in zip(runs, beside, strict=True)]
    return min(ratios), statistics.median(ratios), max(ratios)
