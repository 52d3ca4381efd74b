"""Tables of gains: who is compared with whom, over which tasks and visits."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.benched import SETTINGS

from recsmith.bench.gain_tables import ALL, planning_medians, references, tables_of
from recsmith.bench.gains import ESTIMATES
from recsmith.bench.sharding import BenchResults


def test_planners_are_compared_with_auto_and_neuroshard_where_they_take_part(whole: tuple[Path, BenchResults]):
    words = ("random", "neuroshard", "auto@torchrec", "auto")
    changed = replace(whole[1], settings=replace(SETTINGS, planners=words))
    assert references(changed) == ("auto@torchrec", "auto", "neuroshard")
    assert references(whole[1]) == ("random",)


def test_a_table_has_the_rows_and_that_of_all_by_every_estimate(whole: tuple[Path, BenchResults]):
    (table,) = tables_of(whole[1])
    assert tuple(table.rows) == ESTIMATES
    assert table.main_rows == table.rows["median"]
    assert [(row.row, row.tasks) for row in table.main_rows] == [("4x64", 1), ("4x128", 1), (ALL, 2)]
    assert table.verdict("median").rows == 0  # no classic greedy takes part: size_greedy has a cost model of its own


def test_all_tasks_count_as_many_visits_as_the_one_with_the_fewest(whole: tuple[Path, BenchResults]):
    found = whole[1]
    last = next(key for key in found.measured if key[1] == 1)
    fewer = replace(found, measured={key: each for key, each in found.measured.items() if key != last})
    one = replace(found, measured={key: each for key, each in found.measured.items() if key[1] == 0})
    assert tables_of(fewer) == tables_of(one) != tables_of(found)


def test_planning_takes_its_median_over_tasks(whole: tuple[Path, BenchResults]):
    attempts = [each.plan_s for each in whole[1].attempts.values() if each.planner == "random"]
    medians = planning_medians(whole[1])
    assert medians["random"] == pytest.approx(sum(attempts) / 2)
    none = planning_medians(replace(whole[1], attempts={}))["random"]
    assert none != none
