"""What people and programs read of a run of the sharding benchmark."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.benched import SETTINGS

from recsmith.bench.gains import GainVerdict
from recsmith.bench.plans import Attempt
from recsmith.bench.sharding import BenchResults
from recsmith.reports.benchmarks import bench_lines, bench_to_raw, verdict_words


def test_the_table_has_a_line_for_every_row_and_what_they_come_to(whole: tuple[Path, BenchResults]):
    lines = bench_lines(whole[1])
    text = "\n".join(lines)
    assert "1 a row, 4 of 4 visits measured; 65,536 samples of all devices; seed 2026" in text
    assert [line.split()[0] for line in lines if line[:3] in ("4x6", "4x1", "all")] == ["4x64", "4x128", "all"]
    assert "random: significantly worse than: " in text
    assert "classic greedies" not in text  # none took part: size_greedy has a cost model of its own
    assert "kernels are simulated" in text
    assert "rows of fewer than 5 tasks tell nothing apart" in text
    on_cpu = replace(whole[1], settings=replace(SETTINGS, hardware="cpu"))
    assert "kernels are measured" in "\n".join(bench_lines(on_cpu))


def test_a_column_of_a_policy_of_ones_own_says_whose_it_is(whole: tuple[Path, BenchResults]):
    name = {"cost_greedy": "dreamshard:folder/mine.safetensors"}
    attempts = {
        (task, name.get(word, word)): replace(each, planner=name.get(word, word))
        for (task, word), each in whole[1].attempts.items()
    }
    settings = replace(whole[1].settings, planners=tuple(name.get(word, word) for word in whole[1].settings.planners))
    lines = bench_lines(replace(whole[1], settings=settings, attempts=attempts, measured={}))
    assert any(":mine" in line.split() for line in lines)


def test_the_data_holds_the_figures(whole: tuple[Path, BenchResults]):
    raw = bench_to_raw(whole[1])
    (table,) = raw["tables"]
    assert (table["reference"], len(table["fastest"]), len(table["median"])) == ("random", 3, 3)
    for row in (row for estimate in ("fastest", "median", "kernels") for row in table[estimate]):
        for gain in row["gains"]:
            interval = gain["interval"]
            assert interval["low"] <= interval["value"] <= interval["high"]
    ratios: list[float] = []
    for task in (row.tasks[0].name for row in whole[1].drawn):
        visits = [whole[1].measured[task, visit].kernels for visit in range(2)]
        step = {word: np.median([each[word] for each in visits], axis=0).sum(axis=-1).max() for word in visits[0]}
        ratios.append(step["cost_greedy"] / step["random"] - 1)
    assert table["kernels"][2]["gains"][0]["interval"]["value"] == pytest.approx(np.mean(ratios))


def test_failures_are_counted_and_left_out(whole: tuple[Path, BenchResults]):
    _, found = whole
    name = found.drawn[0].tasks[0].name
    lost = Attempt(planner="cost_greedy", error="found no room", plan_s=0.1)
    measured = {
        key: replace(each, kernels={w: k for w, k in each.kernels.items() if (key[0], w) != (name, "cost_greedy")})
        for key, each in found.measured.items()
    }
    changed = replace(found, attempts=found.attempts | {(name, "cost_greedy"): lost}, measured=measured)
    text = "\n".join(bench_lines(changed))
    assert "cost_greedy: no plan of 1 tasks, left out of its means: found no room" in text
    assert "% (1)" in text
    assert bench_to_raw(changed)["without_plan"][0]["task"] == name


@pytest.mark.parametrize(
    ("classics", "which"),
    [
        (1, "the only classic greedy"),
        (3, "the best of 3 classic greedies"),
        (4, "the best of the four classic greedies"),
    ],
)
def test_a_verdict_counts_the_greedies_that_ran(classics: int, which: str):
    said = GainVerdict(reference="auto", worse=(), better=(), rows=1)
    begin = "significantly worse than: none"
    assert verdict_words(said, 0) == begin
    assert verdict_words(said, classics) == f"{begin}; significantly better than {which} in 0 of 1 row"
