"""Settings of the models of histories; without torch."""

from collections.abc import Mapping
from typing import Any, Literal

from recsmith._types import noun
from recsmith.errors import check_rules, outside
from recsmith.files import decode_part
from recsmith.training.models.pooled_settings import (
    MOST_UNITS,
    WHERE,
    PooledSettings,
    TwoTowerSettings,
    wrong_dropout,
    wrong_sizes,
)

MOST_POSITIONS = 2**16  # of a sample: the products of its attention alone would take 16 GiB a head
Score = Literal["target", "dot"]


def _wrong_reads(settings: Any) -> list[str | None]:
    """What is wrong with the features that a model's settings name, with how long histories are, and with dropout."""
    named = [*settings.history, *settings.target, *getattr(settings, "context", ())]
    named += [each for each in (settings.actions, getattr(settings, "times", None)) if each is not None]
    twin = next((name for name in named if named.count(name) > 1), None)
    return [
        None if settings.history else f"{WHERE}.history names no feature; name those of the history's events",
        None
        if len(settings.history) == len(settings.target)
        else f"{WHERE}.history names {len(settings.history)} features and {WHERE}.target {len(settings.target)}; name "
        "one of the target for each of the history, since both are looked up in one table",
        None if twin is None else f"{WHERE} names feature '{twin}' twice; each feature is one thing",
        outside(f"{WHERE}.longest", settings.longest, 1, MOST_POSITIONS),
        wrong_dropout(settings.dropout),
    ]


@noun
class HSTUSettings:
    """Of `hstu`: pointwise attention with gates, by place and time (Zhai et al. 2024, arXiv 2402.17152).

    history: features of a history's events, each with an id an event, oldest first; their vectors are added. target:
    features of what is scored, one for each of `history`, in the same tables. actions: the feature of what was done at
    each event. times: the feature of when, in whole seconds, an integer that is looked up nowhere. target_time: when
    the target is scored. context: features of the user, each with one id, whose vectors come before the history.
    longest: events of a history; older ones are left out. score: target appends the target to the history and gives a
    logit for each label; dot scores it by its product with the user's vector. blocks: layers. heads: of attention.
    attention_dim, linear_dim: of a head. time_buckets: of the logarithm of time between events. hidden: units of the
    layer before the logits, where score is target. dropout: share of a layer's inputs left out in training.
    """

    history: tuple[str, ...] = ("history",)
    target: tuple[str, ...] = ("target",)
    actions: str | None = None
    times: str | None = None
    target_time: str | None = None
    context: tuple[str, ...] = ()
    longest: int = 200
    score: Score = "target"
    blocks: int = 2
    heads: int = 2
    attention_dim: int = 16
    linear_dim: int = 16
    time_buckets: int = 128
    hidden: int = 64
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_rules(
            *_wrong_reads(self),
            *(outside(f"{WHERE}.{name}", getattr(self, name), 1, MOST_UNITS)
              for name in ("blocks", "heads", "attention_dim", "linear_dim", "time_buckets", "hidden")),
            "model.arguments.target_time is given and times is not; name the feature of the history's times"
            if self.target_time is not None and self.times is None
            else None,
        )  # fmt: skip


@noun
class SASRecSettings:
    """Of `sasrec`: a transformer over the history, whose last vector scores the target (arXiv 1808.09781).

    history: features of a history's events, each with an id an event, oldest first; their vectors are added. target:
    features of what is scored, one for each of `history`, in the same tables. actions: the feature of what was done at
    each event. longest: events of a history; older ones are left out. blocks: layers. heads: of attention; they share
    the columns of a table. hidden: units of the layer between; none: as many as a table has columns. dropout: share of
    a layer's inputs left out in training.
    """

    history: tuple[str, ...] = ("history",)
    target: tuple[str, ...] = ("target",)
    actions: str | None = None
    longest: int = 200
    blocks: int = 2
    heads: int = 1
    hidden: int | None = None
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_rules(
            *_wrong_reads(self),
            *(outside(f"{WHERE}.{name}", getattr(self, name), 1, MOST_UNITS)
              for name in ("blocks", "heads", "hidden")),
        )  # fmt: skip


@noun
class DINSettings:
    """Of `din`: each event of the history weighted by how it fits the target (arXiv 1706.06978).

    history: features of a history's events, each with an id an event, oldest first. target: features of what is scored,
    one for each of `history`, in the same tables. actions: the feature of what was done at each event, whose vector is
    added. longest: events of a history; older ones are left out. attention: units of the layers that weigh an event.
    top: of those before the logits, which also see other tables, pooled, and dense columns. dropout: share of the
    inputs of top left out in training.
    """

    history: tuple[str, ...] = ("history",)
    target: tuple[str, ...] = ("target",)
    actions: str | None = None
    longest: int = 200
    attention: tuple[int, ...] = (32,)
    top: tuple[int, ...] = (64, 32)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_rules(
            *_wrong_reads(self),
            *wrong_sizes(self, ("attention", "top")),
        )  # fmt: skip


SequenceSettings = HSTUSettings | SASRecSettings | DINSettings
SEQUENCE_MODELS: Mapping[str, type[SequenceSettings]] = {
    "hstu": HSTUSettings, "sasrec": SASRecSettings, "din": DINSettings,
}  # fmt: skip


def sequence_settings(name: str, arguments: Mapping[str, Any] | None) -> SequenceSettings | None:
    """The settings of a sequence model, as a run has them; None of other models.

    Raises:
        UsageError: a setting is unknown, of a wrong type or out of range.
    """
    made = SEQUENCE_MODELS.get(name)
    return None if made is None else decode_part(made, dict(arguments or {}), WHERE)


def scores_candidates(settings: SequenceSettings | PooledSettings | None) -> bool:
    """Whether a model scores several targets of a sample, by products with the vector of its user."""
    return isinstance(settings, SASRecSettings | TwoTowerSettings) or (
        isinstance(settings, HSTUSettings) and settings.score == "dot"
    )
