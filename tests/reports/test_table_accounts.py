"""What people read of one table of an explained plan."""

from dataclasses import replace

import pytest
from support.explained import PLAN, account, option
from support.printed import text_of

from recsmith.analyses.explain import RankShare
from recsmith.reports.explanations import explanation_report


def test_an_account_says_where_a_table_is_and_what_it_costs(capsys: pytest.CaptureFixture[str]):
    text = text_of(explanation_report(account()), capsys)
    assert "table    a: 100 x 32 fp32, 12.5 KiB; 1 ids a sample, pooling sum" in text
    assert "placed   row_wise, kernel fused, on ranks 0, 1" in text
    assert "rank 1: rows 50 to 99, columns 0 to 31" in text
    assert "1,234 ids a step on each of its ranks, 12.5% of them different rows" in text
    assert "1 ms          2 ms       0 µs       0 µs   3 ms" in text
    unknown = text_of(explanation_report(account(unique_ratio=None)), capsys)
    assert "the workload does not say how often rows are read again" in unknown


def test_ranks_that_pay_alike_share_a_row(capsys: pytest.CaptureFixture[str]):
    one = RankShare(rank=2, forward_compute_s=1.0, backward_compute_s=0.0, forward_comm_s=0.0, backward_comm_s=0.0)
    shares = (*(replace(one, rank=rank) for rank in range(5)), replace(one, rank=5, forward_compute_s=2.0))
    lines = text_of(explanation_report(account(ranks=shares)), capsys).splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["ranks"])
    assert [line.split()[:3] for line in lines[at + 2 : at + 4]] == [["5", "2", "s"], ["0-4", "1", "s"]]
    many = tuple(replace(one, rank=rank, forward_compute_s=1.0 + rank) for rank in range(20))
    assert "… 12 more" in text_of(explanation_report(account(ranks=many)), capsys)


def test_options_are_listed_with_the_present_one_marked(capsys: pytest.CaptureFixture[str]):
    options = (
        option("column_wise", 0.9, 0, 1, widths=(20, 12)), option("table_column_wise", 0.9, 0, 1, widths=(20, 12)),
        option("row_wise", 1.0, 0, 1, current=True), option("grid_shard", 1.0, *range(9), change=0.0),
        option("data_parallel", 94.0, *range(16)), option("table_wise", None),
    )  # fmt: skip
    lines = text_of(explanation_report(account(*options)), capsys).splitlines()
    shown = [line.split() for line in lines[-6:-1]]
    assert shown[0] == ["column_wise,", "table_column_wise", "1", "x", "20", "+", "1", "x", "12", "fused", "0,", "1",
                        "900", "ms", "-10.00%"]  # fmt: skip
    assert shown[1] == ["»", "row_wise", "whole", "fused", "0,", "1", "1", "s", "as", "it", "is"]
    assert shown[2] == ["grid_shard", "whole", "fused", "0-8", "1", "s", "+0.00%"]
    assert shown[3] == ["data_parallel", "whole", "fused", "0-15", "94", "s", "x", "94"]
    assert shown[4] == ["table_wise", "whole", "fused", "no", "room"]


def test_long_lists_of_options_keep_the_best_of_each_type(capsys: pytest.CaptureFixture[str]):
    splits = [option("column_wise", 1.0 + i / 100, i) for i in range(20)]
    options = (
        *splits,
        option("row_wise", 2.0, 0, 1, current=True),
        option("table_wise", 2.1, 1),
        option("table_wise", 2.2, 3),
    )
    text = text_of(explanation_report(account(*options)), capsys)
    assert text.count("column_wise") == 12
    assert text.count("table_wise") == 1
    assert "»   row_wise" in text
    assert "… 9 more splits of these" in text


def test_many_shards_and_ranks_are_cut(capsys: pytest.CaptureFixture[str]):
    shards = tuple(replace(PLAN.shards()[0], rank=rank) for rank in range(12))
    spread = replace(PLAN.placements[1], ranks=(5, *range(11)), widths=(20, 12))
    text = text_of(explanation_report(account(shards=shards, placement=spread)), capsys)
    assert "… 4 more shards" in text
    assert "columns 1 x 20 + 1 x 12, on ranks 5, 0, 1, 2, 3, 4, 5, 6 …" in text
    single = text_of(explanation_report(account(shards=shards[:1], placement=replace(spread, ranks=(5,)))), capsys)
    assert "on rank 5\n" in single
    assert "rows" not in single.split("access")[0]
