"""Replays of a stream by several updates (arms), each from the same seeds, to decide which one pays.

An arm is judged by the loss of each next period before the model is trained on it, on a replay of the stream. How well
it forecasts gradients says little: a forecast with a third of the plain one's error has led to larger losses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._components import NAME, unknown
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw, decode, encode
from recsmith.jobs.log_lines import LOG, logged, logged_number
from recsmith.training.results.arms import PeriodLoss, Replayed
from recsmith.training.results.measured import keep_reached, reached_before, told
from recsmith.training.run import Run
from recsmith.training.seams import UPDATE
from recsmith.training.systems.periods.updates import update_of

Agreed = Callable[[Callable[[], Raw]], Raw]  # gives every rank what rank 0 finds
ARMS: dict[str, Any] = {
    "incremental": "incremental",
    "window": {"name": "window", "periods": 3},
    "future_gradient": {"name": "future_gradient", "periods": 3},
}


def replay(
    run: Run, arms: Mapping[str, Any], seeds: Sequence[int], folder: Path, train: Callable[[Run], Raw], agreed: Agreed,
    say: Callable[[str], object] = lambda _: None,
) -> list[Replayed]:  # fmt: skip
    """Learn the stream of a run by each arm from each seed; results that the folder holds are read from there.

    Seeds run one after the other, so that a disturbance of the machine affects all arms of a seed.

    Args:
        run: the run, with periods.
        arms: updates by name, as a run names them.
        seeds: of weights and sample order.
        folder: of trained models and measured results.
        train: trains a run, on every rank.
        agreed: gives every rank what rank 0 found.
        say: called with a line for each arm and seed that is trained.

    Raises:
        CorruptFile: the folder holds results that were measured with other settings.
        RecSmithError: a training was asked to end.
    """
    found: list[Replayed] = []
    for seed in seeds:
        for name, update in arms.items():
            target = folder / f"{name}-{seed}"
            wanted = _of_arm(run, update, seed, target)
            kept = agreed(lambda target=target, wanted=wanted: _kept(target, wanted))
            if not kept:
                say(f"{name}, seed {seed}")
                if not train(wanted)["complete"]:
                    raise RecSmithError(f"'{folder}' was asked to end; arms that are done are kept: start it again")
                kept = agreed(lambda wanted=wanted, name=name, seed=seed: _measured(wanted, name, seed))
            found.append(decode(Replayed, kept, str(target)))
    return found


def with_update(run: Run, update: Any) -> Run:
    """The run with another update."""
    assert run.data.periods is not None
    return replace(run, data=replace(run.data, periods=replace(run.data.periods, update=update)))


def _of_arm(run: Run, update: Any, seed: int, folder: Path) -> Run:
    made = with_update(run, update)
    return replace(made, data=replace(made.data, test=None), seed=seed, output=str(folder), checkpoint=None)


def _kept(folder: Path, wanted: Run) -> Raw:
    """The result that was measured before; empty if there is none."""
    found = reached_before(folder, told(wanted), Replayed)
    return {} if found is None else encode(found)


def _measured(run: Run, name: str, seed: int) -> Raw:
    """Read the losses of periods from a training's log, and keep them in its folder."""
    folder = Path(run.output)
    file = folder / LOG
    losses = tuple(
        decode(PeriodLoss, {name: line.get(name) for name in ("period", "ahead", "logloss", "ne")}, str(file))
        for line in logged(file, "period")
    )
    spent = sum(logged_number(file, line, "cpu_s") for line in logged(file, "trained"))
    made = Replayed(arm=name, seed=seed, losses=losses, cpu_s=spent)
    keep_reached(folder, told(run), made)
    return encode(made)


def first_judged(arms: Mapping[str, Any]) -> int:
    """The first period that is scored after every arm has learned a period in its own way."""
    made = [update_of(update) for update in arms.values()]
    return max(max(each.window, each.mixed + 1) for each in made)


def read_arms(texts: Sequence[str] | None) -> dict[str, Any]:
    """Parse arms: `name`, or `name=K` with K periods. None gives the default arms.

    Raises:
        UsageError: an arm is given twice, no update has this name, or K is no whole number.
    """
    if texts is None:
        return dict(ARMS)
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, periods = text.partition("=")
        if equals and not periods.isdigit():
            raise UsageError(f"--arms has '{text}'; write name=K, K a whole number of periods, such as window=7")
        wrong = unknown(UPDATE, name, "--arms") or (f"--arms has '{text}' twice" if text in found else None)
        if wrong or name == "auto":
            raise UsageError(wrong or "--arms has auto, which chooses among the others; leave it out")
        found[text] = {NAME: name, "periods": int(periods)} if equals else ARMS.get(name, name)
    return found
