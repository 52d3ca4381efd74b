"""The first changes of an advice, trained here for some steps beside the run as it is: `recsmith advise --try`.

Each seed trains the run and each change in turn, every other seed in the opposite order, so that what disturbs this
machine disturbs all of them. What is compared are samples a second and the score on data.test of the same seed.
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
LINES = 8  # of the log that a trial has at least; of these the first, in which a job warms up, does not count
LEAST_STEPS = 2 * LINES
BUSY = 0.5  # of the cores: a load average from which on times say little


def check_idle() -> None:
    """UsageError where others work on this machine."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > BUSY * cores:
        raise UsageError(
            f"the load average of this machine is {load:.1f} on {cores} cores, and times that are measured beside "
            f"other work say nothing; try again below {BUSY * cores:.1f}, or leave --try out"
        )


def check_steps(steps: int) -> None:
    """UsageError where there are too few steps to tell anything by."""
    if steps < LEAST_STEPS:
        raise UsageError(f"{steps} steps of a trial tell nothing; try at least {LEAST_STEPS}")


def with_trials(
    advice: Advice, run: Run | Source, settings: tuple[str, ...], steps: int, *, seeds: Sequence[int] = SEEDS,
    on_progress: Callable[[str], object] | None = None,
) -> Advice:  # fmt: skip
    """The advice with how its first changes did here; nothing is left on disk, also where it is interrupted.

    Raises:
        UsageError: there are too few steps, or the run names no data that so many can be read from.
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
    """The score that is compared; '' where the run has no data for one."""
    return "auc" if run.data.test is not None else ""


def _trained(
    run: Run | Source, settings: tuple[str, ...], steps: int, seed: int, score: str
) -> tuple[float, float | None]:
    """(samples a second, the score) of one training in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="recsmith-try-") as folder:
        ends = (f"steps={steps}", f"metrics.every={steps // LINES}", "checkpoint=null")
        result = train(run, settings=(*settings, f"output={folder}/out", f"seed={seed}", *ends))
        if not result["complete"]:
            raise RecSmithError("a trial was asked to end; nothing of it is kept, so start the command again")
        return speed_in(Path(folder) / "out"), _score(result.get("test"), score)


def speed_in(folder: Path) -> float:
    """Samples a second by the log of a run, without its first line, in which it warms up."""
    lines = logged(folder / LOG, "train")
    if len(lines) < 2:
        raise UsageError(
            f"the data of the run ends after {lines[-1]['step'] if lines else 0} steps; try fewer, or give more data"
        )
    return speed_over(folder / LOG, lines[1:])


def _score(scores: Any, name: str) -> float | None:
    """The score by its name; None where the data or the model have none."""
    value = scores.get(name) if name and isinstance(scores, Mapping) else None
    return None if value is None else float(value)


def _tried(
    advised: Advised, found: Mapping[str, Sequence[tuple[float, float | None]]], steps: int, score: str
) -> Tried:
    """What came of a change, seed by seed beside the run as it is."""
    pairs = list(zip(found[""], found[advised.switch.name], strict=True))
    gain, within = mean_within([1 - before / after for (before, _), (after, _) in pairs])
    deltas = [after - before for (_, before), (_, after) in pairs if before is not None and after is not None]
    delta, delta_within = mean_within(deltas) if deltas else (None, None)
    return Tried(
        name=advised.switch.name, told=advised.gain, told_error=advised.gain_error, gain=gain, gain_within=within,
        score=score if deltas else "", delta=delta, delta_within=delta_within, seeds=len(pairs), steps=steps,
    )  # fmt: skip
