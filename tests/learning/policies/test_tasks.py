"""Tasks of learned planners: tables of training and of test apart, degenerate ones rejected and counted."""

import numpy as np
import pytest

from recsmith.errors import UsageError
from recsmith.learning.policies.tasks import (
    FEW_IDS,
    LARGEST_SHARE,
    MOST_ROWS,
    TESTING,
    TRAINING,
    SizeRow,
    draw_placement_tasks,
    parse_size,
    pool_half,
)  # fmt: skip


def names(tables: object) -> set[str]:
    return {table.name.rpartition("_")[0] for table in tables}  # type: ignore[attr-defined]


def test_no_table_is_in_both_halves() -> None:
    halves = [{table.name for table in pool_half(half)} for half in (TRAINING, TESTING)]
    assert (len(halves[0]), len(halves[1]), halves[0] & halves[1]) == (428, 428, set())
    for half, own in zip((TRAINING, TESTING), halves, strict=True):
        drawn = draw_placement_tasks(SizeRow(devices=2, tables=30), 3, 0, "h100", 65_536, half)
        assert all(names(task.workload.tables) <= own for task in drawn.tasks)


def test_tasks_are_those_of_their_seed_and_no_table_decides_one() -> None:
    row = SizeRow(devices=2, tables=30)
    first, again = (draw_placement_tasks(row, 4, 7, "h100", 65_536) for _ in range(2))
    assert first == again
    assert first.degenerate > 0
    assert 0 < first.rejected < 1
    for task in first.tasks:
        load = np.array([(t.features[0].pooling_factor + 1) * (1 + t.embedding_dim / 64) for t in task.workload.tables])
        assert load.max() < LARGEST_SHARE * load.sum() / 2
        assert max(table.num_embeddings for table in task.workload.tables) <= MOST_ROWS


def test_many_devices_take_tables_of_few_ids_on_whole_hosts() -> None:
    task = draw_placement_tasks(parse_size("16x600"), 1, 0, "h100", 65_536).tasks[0]
    assert (task.cluster.hosts, task.cluster.world_size, len(task.workload.tables)) == (2, 16, 600)
    assert max(table.features[0].pooling_factor for table in task.workload.tables) <= FEW_IDS


def test_a_row_in_which_one_table_must_decide_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"4x5 has no task .* mean load of 4 devices; give 6 tables or more"):
        draw_placement_tasks(parse_size("4x5"), 1, 0, "h100", 65_536)
    assert draw_placement_tasks(parse_size("2x3"), 1, 0, "h100", 65_536).tasks


@pytest.mark.parametrize("word", ["", "4", "x50", "4x", "0x50", "9x50", "4x0", "256x50", "4x9999", "-4x50", "4x5.0"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="write <devices>x<tables>, such as 4x50"):
        parse_size(word)
