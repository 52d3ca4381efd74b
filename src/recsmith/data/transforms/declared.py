"""The transforms that a data spec can declare.

Each reads a feature or a dense column and writes a feature or dense columns, under the same name or another (`into`).
The operations are those of DSI (Zhao et al., ISCA 2022, arXiv 2108.09373, table 11).
"""

import math
from typing import Any, Literal, cast

from recsmith._types import noun
from recsmith.errors import CorruptFile, check_rules
from recsmith.files import Raw, decode, did_you_mean, encode

LARGEST_ROWS = 2**40  # largest allowed num_embeddings
CALENDAR = {"hour": 24, "weekday": 7, "day": 31, "month": 12}  # rows of each part of a time


@noun
class HashIds:
    """Hash ids of any size to rows of a table; equal ids get equal rows. salt: selects the hash function."""

    feature: str
    num_embeddings: int
    salt: int = 0
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(_rows(self.num_embeddings, self.feature), _not_negative(self.salt, "salt"))


@noun
class ScatterIds:
    """Permute a table's rows so that neighbouring rows, hot ones above all, are far apart.

    The blocks of a row-wise sharded table are then about equally busy. A sample with an id that is no row is wrong.
    """

    feature: str
    num_embeddings: int
    into: str | None = None

    def __post_init__(self) -> None:
        most = (
            f"num_embeddings for feature '{self.feature}' is {self.num_embeddings:,}; at most 2^31 rows are scattered"
        )
        check_rules(_rows(self.num_embeddings, self.feature), most if self.num_embeddings > 2**31 else None)


@noun
class First:
    """Keep the first `count` ids of each bag."""

    feature: str
    count: int
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(None if self.count >= 1 else f"count of first is {self.count}; it must be at least 1")


@noun
class NGram:
    """Hash each run of `length` consecutive ids of a bag to a row; shorter bags become empty."""

    feature: str
    length: int
    num_embeddings: int
    salt: int = 0
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if 2 <= self.length <= 16 else f"length of n_gram is {self.length}; it must be 2 to 16",
            _rows(self.num_embeddings, self.feature),
            _not_negative(self.salt, "salt"),
        )


@noun
class MapIds:
    """Map ids to 1, 2, ... in the order of `ids`. unknown: `zero` maps other ids to 0, `wrong` makes samples wrong."""

    feature: str
    ids: tuple[int, ...]
    unknown: str = "zero"
    into: str | None = None

    def __post_init__(self) -> None:
        """Check that `ids` is not empty and has no duplicates, and that `unknown` is zero or wrong."""
        check_rules(
            None if self.ids else "ids of map_ids is empty; list those that are known",
            None if len(set(self.ids)) == len(self.ids) else "ids of map_ids lists an id twice; list each once",
            None if self.unknown in ("zero", "wrong") else f"unknown is '{self.unknown}'; it must be zero or wrong",
        )


@noun
class Calendar:
    """Map a time (`ids: seconds` or `milliseconds`) to its hour, weekday (0 is Monday), day or month in UTC.

    The result is a row number: one of 24 hours, 7 weekdays, 31 days of a month or 12 months, counted from 0.
    """

    feature: str
    part: Literal["hour", "weekday", "day", "month"]
    into: str | None = None


@noun
class Bucketize:
    """Turn a dense column into a feature of one id: the number of borders at or below the value."""

    dense: str
    borders: tuple[float, ...]
    into: str

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.borders, self.borders[1:], strict=False))
        check_rules(None if self.borders and rising else "borders of bucketize must be numbers that rise; give some")


@noun
class Clip:
    """Clip dense values to the range from `least` to `most`."""

    dense: str
    least: float
    most: float
    into: str | None = None

    def __post_init__(self) -> None:
        wrong = f"clip has least {self.least} above most {self.most}; swap them"
        check_rules(None if self.least <= self.most else wrong)


@noun
class Log:
    """Replace dense values by log(1 + value); samples with values of -1 and below are wrong."""

    dense: str
    into: str | None = None


@noun
class BoxCox:
    """Replace dense values by (value^power - 1) / power, or log(value) if power is 0; values <= 0 make a sample wrong.

    Source: Box and Cox, "An analysis of transformations", JRSS B 26 (1964).
    """

    dense: str
    power: float
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(None if math.isfinite(self.power) else f"power is {self.power}; it must be a number")


@noun
class OneHot:
    """Turn a dense column into one column of 0 and 1 per listed value, named `<into>_<number of the value>`."""

    dense: str
    values: tuple[float, ...]
    into: str | None = None

    def __post_init__(self) -> None:
        """Check that `values` is not empty."""
        check_rules(None if self.values else "values of one_hot is empty; list some")


Transform = HashIds | ScatterIds | First | NGram | MapIds | Calendar | Bucketize | Clip | Log | BoxCox | OneHot
OPERATIONS: dict[str, Any] = {
    "hash": HashIds, "scatter": ScatterIds, "first": First, "n_gram": NGram, "map_ids": MapIds, "calendar": Calendar,
    "bucketize": Bucketize, "clip": Clip, "log": Log, "box_cox": BoxCox, "one_hot": OneHot,
}  # fmt: skip


def transform_from_raw(raw: object, source: str) -> Transform:
    """A transform from plain data, whose `op` names the operation; CorruptFile if it is invalid."""
    if not isinstance(raw, dict):
        shown = f"{raw!r:.60}"
        raise CorruptFile(f"'{source}': a transform is an object such as {{op: hash, feature: user}}, not {shown}")
    body = dict(cast(Raw, raw))
    name = body.pop("op", None)
    if not isinstance(name, str) or name not in OPERATIONS:
        shown = did_you_mean(name, list(OPERATIONS)) if isinstance(name, str) else f"; known: {', '.join(OPERATIONS)}"
        raise CorruptFile(f"'{source}': no transform is called {name!r:.60}{shown}")
    return decode(OPERATIONS[name], body, source)


def transform_to_raw(transform: Transform) -> Raw:
    """The transform as plain data, in the form of a spec's file."""
    return {"op": operation(transform), **encode(transform)}


def operation(transform: Transform) -> str:
    """The name of a transform's operation in spec files."""
    return next(name for name, made in OPERATIONS.items() if type(transform) is made)


def _rows(count: int, feature: str) -> str | None:
    if 1 <= count <= LARGEST_ROWS:
        return None
    return f"num_embeddings for feature '{feature}' is {count}; it must be 1 to 2^40"


def _not_negative(value: int, what: str) -> str | None:
    return None if 0 <= value < 2**63 else f"{what} is {value}; it must be 0 or more, and below 2^63"
