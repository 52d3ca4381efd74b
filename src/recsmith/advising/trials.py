"""Trains the first changes of an advice for some steps, compared with the unchanged run: `recsmith advise --try`.

Each seed trains the run and each change in turn, every other seed in reverse order, so that disturbances of this
machine affect all of them. Samples per second and the score on data.test are compared for the same seed.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.analyses.advice import Advice, Advised, Tried
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Source
from recsmith.jobs.log_lines import LOG, logged, speed_over
from recsmith.scoring.scores import mean_within
from recsmith.training.launch.launching import train
from recsmith.training.run import Run, load_run

MOST_TRIED, SEEDS = 3, (0, 1, 2)
LINES = 8  # least log lines of a trial; the first one, in which a job warms up, is not counted
LEAST_STEPS = 2 * LINES
BUSY = 0.5  # load average, as a share of the cores, above which measured times are unreliable


def check_idle() -> None:
    """Raise UsageError if other programs keep this machine busy."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > BUSY * cores:
        raise UsageError(
            f"the load average of this machine is {load:.1f} on {cores} cores, and times that are measured beside "
            f"other work say nothing; try again below {BUSY * cores:.1f}, or leave --try out"
        )


def check_steps(steps: int) -> None:
    """Raise UsageError if there are too few steps to show a difference."""
    if steps < LEAST_STEPS:
        raise UsageError(f"{steps} steps of a trial tell nothing; try at least {LEAST_STEPS}")


def with_trials(
    advice: Advice, run: Run | Source, settings: tuple[str, ...], steps: int, *, seeds: Sequence[int] = SEEDS,
    on_progress: Callable[[str], object] | None = None,
) -> Advice:  # fmt: skip
    """The advice with the measured effect of its first changes; nothing is left on disk, even after an interrupt.

    Raises:
        UsageError: there are too few steps, or the run's data ends before that many.
        RecSmithError: a rank failed, or a signal ended a training.
    """
    check_steps(steps)
    some = [each for each in advice.switches if each.verdict in ("pays", "tie")][:MOST_TRIED]
    found: dict[str, list[tuple[float, float | None]]] = {"": [], **{each.switch.name: [] for each in some}}
    changes = {"": (), **{each.switch.name: each.switch.settings for each in some}}
    name = score_of(load_run(run, settings))
    for number, seed in enumerate(seeds if some else ()):
        for kind in list(changes)[:: -1 if number % 2 else 1]:
            if on_progress is not None:
                on_progress(f"{kind or 'the run as it is'}, seed {seed}")
            found[kind].append(_trained(run, (*settings, *changes[kind]), steps, seed, name))
    return replace(advice, tried=tuple(_tried(each, found, steps, name) for each in some))


def score_of(run: Run) -> str:
    """The score that is compared; '' if the run has no test data."""
    return "auc" if run.data.test is not None else ""


def _trained(
    run: Run | Source, settings: tuple[str, ...], steps: int, seed: int, score: str
) -> tuple[float, float | None]:
    """(samples per second, score) of one training in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="recsmith-try-") as folder:
        ends = (f"steps={steps}", f"metrics.every={steps // LINES}", "checkpoint=null")
        result = train(run, settings=(*settings, f"output={folder}/out", f"seed={seed}", *ends))
        if not result["complete"]:
            raise RecSmithError("a trial was asked to end; nothing of it is kept, so start the command again")
        return speed_in(Path(folder) / "out"), _score(result.get("test"), score)


def speed_in(folder: Path) -> float:
    """Samples per second by a run's log, without its first line, in which the job warms up."""
    lines = logged(folder / LOG, "train")
    if len(lines) < 2:
        raise UsageError(
            f"the data of the run ends after {lines[-1]['step'] if lines else 0} steps; try fewer, or give more data"
        )
    return speed_over(folder / LOG, lines[1:])


def _score(scores: Any, name: str) -> float | None:
    """The score of a name; None if the data or the model has none."""
    value = scores.get(name) if name and isinstance(scores, Mapping) else None
    return None if value is None else float(value)


def _tried(
    advised: Advised, found: Mapping[str, Sequence[tuple[float, float | None]]], steps: int, score: str
) -> Tried:
    """The measured effect of a change, seed by seed compared with the unchanged run."""
    pairs = list(zip(found[""], found[advised.switch.name], strict=True))
    gain, within = mean_within([1 - before / after for (before, _), (after, _) in pairs])
    deltas = [after - before for (_, before), (_, after) in pairs if before is not None and after is not None]
    delta, delta_within = mean_within(deltas) if deltas else (None, None)
    return Tried(
        name=advised.switch.name, told=advised.gain, told_error=advised.gain_error, gain=gain, gain_within=within,
        score=score if deltas else "", delta=delta, delta_within=delta_within, seeds=len(pairs), steps=steps,
    )  # fmt: skip
