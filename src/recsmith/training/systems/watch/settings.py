"""The settings of `watch` in a run: how often a job is checked, for what, and which actions follow. No torch."""

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from recsmith._types import noun
from recsmith.errors import MOST_STEPS, UsageError, check_rules, outside
from recsmith.files import Raw, decode_part, did_you_mean, encode
from recsmith.streaming.causes import LOOKS
from recsmith.streaming.hot_sets import LOOKS as HOT_LOOKS
from recsmith.streaming.job_signals import KINDS

MOST_IDS = 2**20  # largest `ids`, since they are counted one by one
VERSION = 4  # of the state in checkpoints
ANOMALIES = "anomalies"  # name of the watcher that `watch` stands for
AUTO, NONE = "auto", "none"  # values of `watch` instead of settings
Action = Literal["save", "stop", "fail", "evaluate", "replan", "refresh", "roll_back"]


@noun
class WatchSettings:
    """How a job is watched.

    every: steps between two looks, at which the job is checked. ids: ids of a feature that are sampled at a look, over
    all ranks. kinds: kinds of anomalies to report; all of them if none is named. features: features whose hot sets are
    watched; all of them if none is named. actions: by kind, the action after an alarm of that kind. cooldown: steps
    after an action in which no other action is taken. sketch_every: steps that are summarized in one file of sketches;
    0 writes none.
    """

    every: int = 8
    ids: int = 256
    kinds: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    actions: dict[str, Action] = field(default_factory=dict[str, Action])
    cooldown: int = 1000
    sketch_every: int = 1000

    def __post_init__(self) -> None:
        check_rules(
            *(
                outside(f"watch.{name}", getattr(self, name), least, most)
                for name, least, most in (
                    ("every", 1, MOST_STEPS),
                    ("ids", 16, MOST_IDS),
                    ("cooldown", 1, MOST_STEPS),
                    ("sketch_every", 0, MOST_STEPS),
                )
            ),
            *(
                None
                if kind in KINDS
                else f"watch.{where} names '{kind}'{did_you_mean(kind, list(KINDS))}; there are {', '.join(KINDS)}"
                for where, named in (("kinds", self.kinds), ("actions", tuple(self.actions)))
                for kind in named
            ),
            *(
                f"watch.actions names '{kind}', which watch.kinds does not"
                for kind in self.actions
                if self.kinds and kind not in self.kinds and kind in KINDS
            ),
        )

    def why_anew(self, raw: Raw, labels: Sequence[str]) -> str | None:
        """Why a watch of these labels cannot continue from a state, and starts anew; None if it can continue."""
        if raw.get("version") != VERSION:
            return f"its state is of version {raw.get('version')}, not {VERSION}"
        if raw.get("labels") != list(labels):
            return "its state is of other labels"
        looked = raw.get("every", self.every)  # means of more steps vary less
        return None if looked == self.every else f"its state is of looks every {looked} steps, not {self.every}"

    def told_columns(self, raw: Raw, features: Sequence[str], dense: Sequence[str]) -> str | None:
        """Which columns were added or removed since a state was saved; None if all are the same."""
        before, now = {*raw["features"], *raw["dense"]}, {*features, *dense}
        found = (("is new, and learned first:", now - before), ("is gone:", before - now))
        return "; ".join(f"{what} {', '.join(map(repr, sorted(names)))}" for what, names in found if names) or None

    def told_from(self, steps: int | None, before: int = 0, path: str = "") -> str:
        """A line on the step from which the watch can report problems, for a job of this many steps.

        before: number of looks in the state from which the job continues. path: the training that saved this state, the
        job's own or another.
        """
        if before >= LOOKS:
            return f"a look every {self.every} steps; what is usual is known from {before:,} looks of '{path}'"
        every, first, hot = self.every, (LOOKS - before) * self.every, HOT_LOOKS * self.every
        if steps is not None and steps <= first:
            return (
                f"{steps:,} steps are too few to watch, for what is usual is known after {first:,}; runs that begin "
                "with this one go on from there, and without such runs write watch: none"
            )
        return f"a look every {every} steps; what is usual is known after {first:,} steps, of hot sets after {hot:,}"

    def check_features(self, names: Sequence[str]) -> None:
        """Raise UsageError if the data lacks one of the features."""
        strange = next((each for each in self.features if each not in names), None)
        if strange is not None:
            hint = did_you_mean(strange, list(names))
            raise UsageError(f"watch.features names '{strange}', which the data does not have{hint}")


def watch_settings(watch: str | dict[str, object]) -> WatchSettings | None:
    """The settings of a run's `watch`, which is auto, none, or a mapping; None if nothing is watched."""
    if watch == NONE:
        return None
    if isinstance(watch, str):
        check_rules(None if watch == AUTO else f"watch is '{watch}'; it is auto, none, or a mapping of settings")
        return WatchSettings()
    empty = next((name for name in ("kinds", "features") if watch.get(name) in ([], ())), None)
    check_rules(None if empty is None else f"watch.{empty} is empty; name some, or leave it out, which means all")
    return decode_part(WatchSettings, watch, "watch")


def watcher_spec(watch: str | dict[str, object]) -> tuple[dict[str, object], ...]:
    """The watcher that a run's `watch` stands for, as `watchers` would name it."""
    settings = watch_settings(watch)
    return () if settings is None else ({"name": ANOMALIES, **encode(settings)},)
