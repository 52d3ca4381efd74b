"""Settings of the models in this folder that read only pooled tables; without torch."""

from collections.abc import Mapping

from recsmith._types import noun
from recsmith.errors import check_rules, outside

MOST_UNITS = 2**16
MOST_EXPERTS = 2**10
WHERE = "model.arguments"
WIDE = "_wide"  # suffix for a feature's table of weights, if the run names no tables


def wrong_sizes(settings: object, names: tuple[str, ...]) -> list[str | None]:
    """What is wrong with layer sizes; None for each that is right."""
    return [outside(f"{WHERE}.{name}", each, 1, MOST_UNITS) for name in names for each in getattr(settings, name)]


@noun
class MMoESettings:
    """Settings of `mmoe`: experts that all labels share, and a gate for each label that mixes them.

    experts: number of experts. expert: units of the layers of an expert. tower: units of the layers of a label, before
    its logit. dropout: fraction of the inputs of towers dropped in training.

    Source: Ma et al. 2018, KDD.
    """

    experts: int = 4
    expert: tuple[int, ...] = (64,)
    tower: tuple[int, ...] = (32,)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_rules(
            outside(f"{WHERE}.experts", self.experts, 1, MOST_EXPERTS), *wrong_sizes(self, ("expert", "tower")),
            _empty("expert", self.expert), wrong_dropout(self.dropout),
        )  # fmt: skip


@noun
class PLESettings:
    """Settings of `ple`: own experts for each label next to shared experts, in levels (Tang et al. 2020, RecSys).

    levels: number of levels of experts, one above the other. shared: number of shared experts in a level. own: number
    of experts of each label in a level. expert: units of the layers of an expert. tower: units of the layers of a
    label, before its logit. dropout: fraction of the inputs of towers dropped in training.
    """

    levels: int = 2
    shared: int = 2
    own: int = 2
    expert: tuple[int, ...] = (64,)
    tower: tuple[int, ...] = (32,)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_rules(
            *(outside(f"{WHERE}.{name}", getattr(self, name), 1, MOST_EXPERTS) for name in ("levels", "shared", "own")),
            *wrong_sizes(self, ("expert", "tower")), _empty("expert", self.expert), wrong_dropout(self.dropout),
        )  # fmt: skip


@noun
class TwoTowerSettings:
    """Settings of `two_tower`: a user vector and an item vector, whose product is the score (Yi et al. 2019, RecSys).

    user: features of the user and the context; this tower also reads dense columns. item: features of the item; the
    first is its id, one for each sample. layers: units of each tower; the last number is the columns of the vectors.
    temperature: divisor of the products of vectors of length 1. correct: whether the logarithm of an item's share of
    the samples so far is subtracted; without it, popular items, which are often among a batch's other items, score too
    low.
    """

    user: tuple[str, ...] = ("user",)
    item: tuple[str, ...] = ("item",)
    layers: tuple[int, ...] = (64, 32)
    temperature: float = 0.1  # trade-off: lower temperatures learn only from the hardest items of a batch
    correct: bool = True

    def __post_init__(self) -> None:
        both = next((name for name in self.user if name in self.item), None)
        check_rules(
            *(None if getattr(self, name) else f"{WHERE}.{name} names no feature; name those of the {name}"
              for name in ("user", "item")),
            None if both is None else f"{WHERE} has feature '{both}' in both towers; each feature is of one",
            *wrong_sizes(self, ("layers",)), _empty("layers", self.layers),
            None
            if 0 < self.temperature < float("inf")
            else f"{WHERE}.temperature is {self.temperature:g}; it must be above 0 and finite",
        )  # fmt: skip


@noun
class WideDeepSettings:
    """Settings of `wide_deep`: weights of ids that add up to a logit, plus layers over vectors (Cheng et al. 2016).

    wide: patterns of the names of tables of weights; the layers read all other tables. wide_columns: columns of the
    tables of weights that are made if the run names no tables. layers: units of the deep part, before its logits.
    dropout: fraction of the deep part's inputs dropped in training.
    """

    wide: tuple[str, ...] = (f"*{WIDE}",)
    wide_columns: int = 4  # the fewest columns that tables can have
    layers: tuple[int, ...] = (64, 32)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_rules(
            None if self.wide else f"{WHERE}.wide names no pattern; give one, such as ['*{WIDE}']",
            None
            if 0 < self.wide_columns <= MOST_UNITS and self.wide_columns % 4 == 0
            else f"{WHERE}.wide_columns is {self.wide_columns}; it must be a positive multiple of 4",
            *wrong_sizes(self, ("layers",)), wrong_dropout(self.dropout),
        )  # fmt: skip


def _empty(name: str, sizes: tuple[int, ...]) -> str | None:
    return None if sizes else f"{WHERE}.{name} names no layer; give its units, such as [64]"


def wrong_dropout(value: float) -> str | None:
    """What is wrong with a dropout fraction; None if nothing."""
    return None if 0 <= value < 1 else f"{WHERE}.dropout is {value}; it must be 0 or more and below 1"


PooledSettings = MMoESettings | PLESettings | TwoTowerSettings | WideDeepSettings
POOLED_MODELS: Mapping[str, type[PooledSettings]] = {
    "mmoe": MMoESettings, "ple": PLESettings, "two_tower": TwoTowerSettings, "wide_deep": WideDeepSettings,
}  # fmt: skip
