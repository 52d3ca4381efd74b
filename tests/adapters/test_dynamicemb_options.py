"""Options of dynamicemb to and from tables of ids without end, by the facts of its documentation."""

import enum
from typing import Any

import pytest

from recsmith.adapters.dynamicemb_options import dynamic_of_options, options_of_table
from recsmith.errors import UsageError
from recsmith.workloads import Dynamic, Feature, Table

Strategy = enum.IntEnum("Strategy", ["TIMESTAMP", "STEP", "CUSTOMIZED", "LFU", "NO_EVICTION"], start=0)


def table(dynamic: Dynamic | None, rows: int = 1000) -> Table:
    return Table(
        name="user", num_embeddings=rows, embedding_dim=16, features=(Feature(name="u", pooling_factor=1.0),),
        dynamic=dynamic,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "dynamic"),
    [
        ({}, Dynamic(evict="lru")),
        ({"score_strategy": Strategy.STEP}, Dynamic(evict="lru")),
        ({"score_strategy": "LFU", "admit_strategy": {"threshold": 3}}, Dynamic(evict="lfu", admit=3)),
        ({"score_strategy": (Strategy.LFU, Strategy.TIMESTAMP)}, Dynamic(evict="lfu")),
        ({"score_strategy": (Strategy.NO_EVICTION,)}, Dynamic(evict="none")),
    ],
)
def test_who_loses_a_row_is_read(options: dict[str, Any], dynamic: Dynamic) -> None:
    assert dynamic_of_options(options, "user") == dynamic


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score_strategy": Strategy.CUSTOMIZED}, "score_strategy CUSTOMIZED, by which nobody knows"),
        ({"score_strategy": ("TIMESTAMP", "LFU"), "score_function": print}, "with a score_function"),
        ({"admit_strategy": object()}, "admit ids by object, which has no threshold"),
    ],
)
def test_what_says_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dynamic_of_options(options, "user")


@pytest.mark.parametrize("dynamic", [Dynamic(evict="lru"), Dynamic(evict="lfu", admit=4), Dynamic(evict="none")])
def test_written_options_are_read_again(dynamic: Dynamic) -> None:
    made = options_of_table(table(dynamic), world_size=3, optimizer="adam")
    assert dynamic_of_options(made, "user") == dynamic
    assert (
        made["global_hbm_for_values"] == 3 * 384 * 16 * 4 * 3
    )  # 334 rows of a rank are 3 buckets; Adam has two states
    assert made["caching"] is False


def test_a_share_on_devices_is_a_cache() -> None:
    made = options_of_table(table(Dynamic()), world_size=1, optimizer="rowwise_adagrad", on_device=0.25)
    assert made["caching"] is True
    assert made["global_hbm_for_values"] == 1024 * (64 + 4) // 4


@pytest.mark.parametrize("dynamic", [None, Dynamic(evict="age")])
def test_what_dynamicemb_does_not_is_refused(dynamic: Dynamic | None) -> None:
    with pytest.raises(UsageError, match=r"has no ids without end|evicts no ids by age"):
        options_of_table(table(dynamic), world_size=1, optimizer="sgd")
