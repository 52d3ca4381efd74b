"""What a spec says of transforms: each reads a feature or a dense column and writes one, under its own name or another.

The operations are those that DSI names (Zhao et al., ISCA 2022, arXiv 2108.09373, table 11).
"""

import math
from typing import Any, Literal, cast

from recsmith._types import noun
from recsmith.errors import CorruptFile, check_rules
from recsmith.files import Raw, decode, did_you_mean, encode

LARGEST_ROWS = 2**40
CALENDAR = {"hour": 24, "weekday": 7, "day": 31, "month": 12}  # rows of each part of a time


@noun
class HashIds:
    """Ids of any size to rows of a table, the same ones always to the same row. salt: another one, other rows."""

    feature: str
    num_embeddings: int
    salt: int = 0
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(_rows(self.num_embeddings, self.feature), _not_negative(self.salt, "salt"))


@noun
class ScatterIds:
    """Each row to a row of its own, so that rows that lie side by side, hot ones first of all, lie far apart.

    A table that is split by rows then has about equally busy blocks. Ids beyond the rows are wrong.
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
    """The first ids of each bag, `count` at most."""

    feature: str
    count: int
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(None if self.count >= 1 else f"count of first is {self.count}; it must be at least 1")


@noun
class NGram:
    """A row for each `length` ids that follow each other in a bag; shorter bags get none."""

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
    """Known ids to 1, 2, ... in the order of `ids`, and others to 0. unknown: `zero`, or `wrong`: the sample is."""

    feature: str
    ids: tuple[int, ...]
    unknown: str = "zero"
    into: str | None = None

    def __post_init__(self) -> None:
        """Check that ids are different and there is something to do with others."""
        check_rules(
            None if self.ids else "ids of map_ids is empty; list those that are known",
            None if len(set(self.ids)) == len(self.ids) else "ids of map_ids lists an id twice; list each once",
            None if self.unknown in ("zero", "wrong") else f"unknown is '{self.unknown}'; it must be zero or wrong",
        )


@noun
class Calendar:
    """A time (`ids: seconds` or `milliseconds`) to its hour, weekday (0 is Monday), day or month of UTC.

    Each is a row: 24 hours, 7 weekdays, 31 days of a month, 12 months.
    """

    feature: str
    part: Literal["hour", "weekday", "day", "month"]
    into: str | None = None


@noun
class Bucketize:
    """A dense column to a feature of one id: how many borders are at or below the value."""

    dense: str
    borders: tuple[float, ...]
    into: str

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.borders, self.borders[1:], strict=False))
        check_rules(None if self.borders and rising else "borders of bucketize must be numbers that rise; give some")


@noun
class Clip:
    """A dense value no less than `least` and no more than `most`."""

    dense: str
    least: float
    most: float
    into: str | None = None

    def __post_init__(self) -> None:
        wrong = f"clip has least {self.least} above most {self.most}; swap them"
        check_rules(None if self.least <= self.most else wrong)


@noun
class Log:
    """log(1 + value); values of -1 and below are wrong."""

    dense: str
    into: str | None = None


@noun
class BoxCox:
    """(value^power - 1) / power, and log(value) where the power is 0; values of 0 and below are wrong.

    Source: Box and Cox, "An analysis of transformations", JRSS B 26 (1964).
    """

    dense: str
    power: float
    into: str | None = None

    def __post_init__(self) -> None:
        check_rules(None if math.isfinite(self.power) else f"power is {self.power}; it must be a number")


@noun
class OneHot:
    """A dense column to one of 0 and 1 for each value listed, called `<into>_<number of the value>`."""

    dense: str
    values: tuple[float, ...]
    into: str | None = None

    def __post_init__(self) -> None:
        """Check that there are some."""
        check_rules(None if self.values else "values of one_hot is empty; list some")


Transform = HashIds | ScatterIds | First | NGram | MapIds | Calendar | Bucketize | Clip | Log | BoxCox | OneHot
OPERATIONS: dict[str, Any] = {
    "hash": HashIds, "scatter": ScatterIds, "first": First, "n_gram": NGram, "map_ids": MapIds, "calendar": Calendar,
    "bucketize": Bucketize, "clip": Clip, "log": Log, "box_cox": BoxCox, "one_hot": OneHot,
}  # fmt: skip


def transform_from_raw(raw: object, source: str) -> Transform:
    """A transform from plain data, whose `op` says which; CorruptFile where it is none."""
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
    """Plain data of a transform, as a spec's file holds it."""
    return {"op": operation(transform), **encode(transform)}


def operation(transform: Transform) -> str:
    """The name of a transform in files."""
    return next(name for name, made in OPERATIONS.items() if type(transform) is made)


def _rows(count: int, feature: str) -> str | None:
    if 1 <= count <= LARGEST_ROWS:
        return None
    return f"num_embeddings for feature '{feature}' is {count}; it must be 1 to 2^40"


def _not_negative(value: int, what: str) -> str | None:
    return None if 0 <= value < 2**63 else f"{what} is {value}; it must be 0 or more, and below 2^63"
