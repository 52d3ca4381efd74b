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

MOST_POSITIONS = 2**16  # longest history; beyond it, attention products of one sample take over 16 GiB a head
Score = Literal["target", "dot"]


def _wrong_reads(settings: Any) -> list[str | None]:
    """What is wrong with the features that a model's settings name, with the length of histories, or with dropout."""
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
    """Settings of `hstu`: pointwise attention with gates, biased by position and time (arXiv 2402.17152).

    history: features of a history's events, with one id for each event, oldest first; their vectors are added. target:
    features of the scored item, one for each of `history`, in the same tables. actions: feature of the action at each
    event. times: feature of the events' times, in whole seconds; an integer that no table looks up. target_time:
    feature of the time at which the target is scored. context: features of the user, with one id each, whose vectors
    come before the history. longest: most events of a history; older events are left out. score: target appends the
    target to the history and gives a logit for each label; dot scores the target by its product with the user's vector.
    blocks: number of layers. heads: number of attention heads. attention_dim, linear_dim: query/key and value columns
    of a head. time_buckets: number of buckets of the logarithm of time between events. hidden: units of the layer
    before the logits, if score is target. dropout: fraction of a layer's inputs dropped in training.
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
    """Settings of `sasrec`: a transformer over the history, whose last vector scores the target (arXiv 1808.09781).

    history: features of a history's events, with one id for each event, oldest first; their vectors are added. target:
    features of the scored item, one for each of `history`, in the same tables. actions: feature of the action at each
    event. longest: most events of a history; older events are left out. blocks: number of layers. heads: number of
    attention heads, among which the columns of a table are divided. hidden: units of the feed-forward layer; none: as
    many as a table has columns. dropout: fraction of a layer's inputs dropped in training.
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
    """Settings of `din`: each event of the history is weighted by how well it fits the target (arXiv 1706.06978).

    history: features of a history's events, with one id for each event, oldest first. target: features of the scored
    item, one for each of `history`, in the same tables. actions: feature of the action at each event, whose vector is
    added. longest: most events of a history; older events are left out. attention: units of the layers that compute an
    event's weight. top: units of the layers before the logits, which also read other tables, pooled, and dense columns.
    dropout: fraction of the inputs of top dropped in training.
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
    """The settings of a sequence model in a run; None for other models.

    Raises:
        UsageError: a setting is unknown, of a wrong type or out of range.
    """
    made = SEQUENCE_MODELS.get(name)
    return None if made is None else decode_part(made, dict(arguments or {}), WHERE)


def scores_candidates(settings: SequenceSettings | PooledSettings | None) -> bool:
    """Whether a model scores several targets of a sample, by their products with the user's vector."""
    return isinstance(settings, SASRecSettings | TwoTowerSettings) or (
        isinstance(settings, HSTUSettings) and settings.score == "dot"
    )
