"""Settings of the models of this folder that read pooled tables alone; without torch."""

from collections.abc import Mapping

from recsmith._types import noun
from recsmith.errors import check_rules, outside

MOST_UNITS = 2**16
MOST_EXPERTS = 2**10
WHERE = "model.arguments"
WIDE = "_wide"  # behind the name of a feature's table of weights, where a run names no tables


def wrong_sizes(settings: object, names: tuple[str, ...]) -> list[str | None]:
    """What is wrong with sizes of layers."""
    return [outside(f"{WHERE}.{name}", each, 1, MOST_UNITS) for name in names for each in getattr(settings, name)]


@noun
class MMoESettings:
    """Of `mmoe`: experts that all labels share, and a gate of each label that mixes them (Ma et al. 2018, KDD).

    experts: how many. expert: units of the layers of an expert. tower: units of the layers of a label, before its
    logit. dropout: share of the inputs of towers left out in training.
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
    """Of `ple`: experts of each label beside shared ones, in levels (Tang et al. 2020, RecSys).

    levels: of experts, one above the other. shared: experts of all labels in a level. own: experts of each label in a
    level. expert: units of the layers of an expert. tower: units of the layers of a label, before its logit. dropout:
    share of the inputs of towers left out in training.
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
    """Of `two_tower`: a vector of the user and one of the item, whose product is the score (Yi et al. 2019, RecSys).

    user: features of the user and of the moment; dense columns go with them. item: features of the item, of which the
    first one is its id, one a sample. layers: units of each tower; the last is how many columns the vectors have.
    temperature: by which products of vectors of length 1 are divided. correct: subtract the logarithm of an item's
    share of the samples seen so far, without which popular items, which are often among the others of a batch, score
    too low.
    """

    user: tuple[str, ...] = ("user",)
    item: tuple[str, ...] = ("item",)
    layers: tuple[int, ...] = (64, 32)
    temperature: float = 0.1  # trade-off: lower ones look at the hardest items of a batch alone
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
    """Of `wide_deep`: weights of ids that add up to a logit, beside layers over vectors of the same ids (Cheng 2016).

    wide: patterns of the names of tables of weights; all others are read by the layers. wide_columns: of the tables of
    weights that are made where the run names no tables. layers: units of the deep part, before its logits. dropout:
    share of its inputs left out in training.
    """

    wide: tuple[str, ...] = (f"*{WIDE}",)
    wide_columns: int = 4  # the least that tables can have
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
    """What is wrong with a share of inputs that is left out."""
    return None if 0 <= value < 1 else f"{WHERE}.dropout is {value}; it must be 0 or more and below 1"


PooledSettings = MMoESettings | PLESettings | TwoTowerSettings | WideDeepSettings
POOLED_MODELS: Mapping[str, type[PooledSettings]] = {
    "mmoe": MMoESettings, "ple": PLESettings, "two_tower": TwoTowerSettings, "wide_deep": WideDeepSettings,
}  # fmt: skip
