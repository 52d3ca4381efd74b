"""A stream learned by several updates, each from the same seeds: what the loss of each next period was."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import RecSmithError
from recsmith.files import Raw, decode, encode
from recsmith.training.log import LOG
from recsmith.training.measured import keep_reached, reached_before, told
from recsmith.training.run import Run

Agreed = Callable[[Callable[[], Raw]], Raw]  # what rank 0 finds, on every rank
ARMS: dict[str, Any] = {
    "incremental": "incremental",
    "window": {"name": "window", "periods": 3},
    "future_gradient": {"name": "future_gradient", "periods": 3},
}


@noun
class PeriodLoss:
    """A period, scored by a model that has trained on all before it but the newest `ahead` - 1 of these."""

    period: int
    ahead: int
    logloss: float
    ne: float


@noun
class Replayed:
    """A stream that was learned once by an arm. cpu_s: what learning it took on rank 0, scores left out."""

    arm: str
    seed: int
    losses: tuple[PeriodLoss, ...]
    cpu_s: float


def replay(
    run: Run, arms: Mapping[str, Any], seeds: Sequence[int], folder: Path, train: Callable[[Run], Raw], agreed: Agreed,
    say: Callable[[str], object] = lambda _: None,
) -> list[Replayed]:  # fmt: skip
    """Learn the stream of a run by each arm from each seed; those that the folder holds are taken from there.

    train: trains a run, on every rank. agreed: gives every rank what rank 0 found. Seeds come one after the other, so
    that what disturbs the machine disturbs all arms of a seed.

    Raises:
        CorruptFile: the folder holds what was measured with other settings.
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
    """The run, which learns its periods by another update."""
    assert run.data.periods is not None
    return replace(run, data=replace(run.data, periods=replace(run.data.periods, update=update)))


def _of_arm(run: Run, update: Any, seed: int, folder: Path) -> Run:
    made = with_update(run, update)
    return replace(made, data=replace(made.data, test=None), seed=seed, output=str(folder), checkpoint=None)


def _kept(folder: Path, wanted: Run) -> Raw:
    """What was measured before; nothing where nothing was."""
    found = reached_before(folder, told(wanted), Replayed)
    return {} if found is None else encode(found)


def _measured(run: Run, name: str, seed: int) -> Raw:
    """What the log of a training says of its periods, which is kept beside it."""
    folder = Path(run.output)
    lines: list[Raw] = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    losses = tuple(
        PeriodLoss(period=line["period"], ahead=line["ahead"], logloss=line["logloss"], ne=line["ne"])
        for line in lines
        if line["event"] == "period"
    )
    spent = sum(line["cpu_s"] for line in lines if line["event"] == "trained")
    made = Replayed(arm=name, seed=seed, losses=losses, cpu_s=spent)
    keep_reached(folder, told(run), made)
    return encode(made)
