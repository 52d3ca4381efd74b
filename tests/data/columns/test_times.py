"""Times of columns: what they may look like, and what is refused."""

import importlib
from datetime import UTC, datetime
from typing import Any

import pytest

from recsmith.data.columns.times import are_times, micros_of, seconds_of
from recsmith.errors import CorruptFile

arrow: Any = importlib.import_module("pyarrow")
NOON = int(datetime(2024, 5, 1, 12, 0, 5, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    "text",
    ["2024-05-01 12:00:05", "2024-05-01T12:00:05", "2024-05-01T12:00:05Z", "2024-05-01T12:00:05.900Z",
     "2024-05-01T14:00:05.9+02:00", "2024-05-01T14:00:05+0200", "2024-05-01 12:00:05.123456789", f"{NOON}",
     f"{NOON}.75"],
)  # fmt: skip
def test_a_text_is_the_same_time_however_it_is_written(text: str) -> None:
    assert seconds_of(arrow.array([text, text]), "t").to_pylist() == [NOON, NOON]


def test_all_other_types_are_rounded_down_to_seconds() -> None:
    given = [arrow.array([NOON], kind) for kind in (arrow.int64(), arrow.uint32(), arrow.timestamp("s", "Asia/Tokyo"))]
    given += [arrow.array([NOON + 0.9]), arrow.array([NOON * 1000 + 999], arrow.timestamp("ms"))]
    given += [arrow.array([NOON * 10**9 + 999], arrow.timestamp("ns"))]
    assert [seconds_of(each, "t").to_pylist() for each in given] == [[NOON]] * len(given)
    assert seconds_of(arrow.array([-1], arrow.timestamp("ms")), "t").to_pylist() == [-1]
    assert seconds_of(arrow.array([19_000], arrow.date32()), "t").to_pylist() == [19_000 * 86_400]
    assert seconds_of(arrow.array([NOON * 1000 + 999]), "t", 1000).to_pylist() == [NOON]
    assert seconds_of(arrow.array([], arrow.string()), "t").to_pylist() == []
    assert micros_of(arrow.array(["1970-01-01T00:00:01.5Z"]), "t").to_pylist() == [1_500_000]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([NOON * 1000], f"t holds {NOON * 1000}, which in seconds is after the year 9999; give `ids: milliseconds`"),
        ([NOON * 10**6], "in seconds is after the year 9999; write it as a timestamp"),
        (["2024-05-01", "01/05/2024"], "holds something that is no time: '01/05/2024'"),
        (["2024-05-01", "2024-05-01T12:00:00Z"], "in one way in all rows"),
        ([float("nan")], "holds nan, which is no time"),
        ([True], "holds something that is no time: bool"),
    ],
)
def test_what_is_no_time_is_refused_with_what_it_is(values: list[Any], said: str) -> None:
    with pytest.raises(CorruptFile, match=said):
        seconds_of(arrow.array(values), "t")
    with pytest.raises(CorruptFile, match="in milliseconds is after the year 9999; write it as a timestamp"):
        seconds_of(arrow.array([NOON * 10**6]), "t", 1000)
    with pytest.raises(CorruptFile, match="t holds a time that is out of range"):
        seconds_of(arrow.array([2**60], arrow.timestamp("s")), "t")


def test_texts_are_times_where_all_of_them_are() -> None:
    assert are_times(arrow.array(["2024-05-01T12:00:00.000Z", "2024-05-02T12:00:00.000Z"]))
    assert not are_times(arrow.array(["2024-05-01", "tomorrow"]))
