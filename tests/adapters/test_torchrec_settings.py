"""Settings of TorchRec's planner: stock is what it ships with, the list holds what a reader would try."""

from dataclasses import replace

import pytest

from recsmith.adapters.torchrec_settings import STOCK, TorchRecSettings, fair_settings, least_width
from recsmith.errors import UsageError
from recsmith.problems import Space

SPACE = Space(types=("table_wise", "column_wise"), kernels=("fused",))


@pytest.mark.parametrize(
    "words",
    [{"proposers": "gredy"}, {"min_partition": 3}, {"timeout_s": 0}, {"reserve": 1.0}, {"reserve": -0.1}],
)
def test_settings_that_torchrec_cannot_have_are_refused(words: dict[str, object]):
    with pytest.raises(UsageError):
        TorchRecSettings(**words)  # type: ignore[arg-type]


def test_the_list_begins_with_stock_and_repeats_nothing():
    found = fair_settings(SPACE, [4, 64, 128])
    assert found[0] == STOCK
    assert len(set(found)) == len(found)
    assert {each.bandwidths for each in found} == {"torchrec", "cluster"}
    assert {each.min_partition for each in found} == {None, 8, 16, 32, 64, "half"}
    assert ("table_wise",) in {each.types for each in found}


def test_widths_that_split_all_tables_alike_are_tried_once():
    assert {each.min_partition for each in fair_settings(SPACE, [4])} == {None}
    assert {each.min_partition for each in fair_settings(SPACE, [16])} == {None, 8}


def test_the_proposer_that_needs_hbm_is_left_out_on_cpus():
    assert {each.proposers for each in fair_settings(SPACE, [64])} == {"default", "dynamic_programming"}
    assert {each.proposers for each in fair_settings(SPACE, [64], "cpu")} == {"default"}


def test_settings_say_what_differs_from_stock():
    assert STOCK.describe() == "stock"
    changed = replace(STOCK, bandwidths="cluster", min_partition=32, order="perf", types=("table_wise",))
    assert changed.describe() == "cluster's bandwidths, min_partition 32, partitioner by perf, TW"
    assert [least_width("half", dim) for dim in (4, 128)] == [4, 64]
    assert changed.types_in(SPACE) == ("table_wise",)
