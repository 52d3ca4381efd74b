"""How far `analytic` was off by published figures: the product's table and the list of figures say the same."""

import hashlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.cases import table, workload

import recsmith
from recsmith.clusters import load_cluster
from recsmith.costs.neural.files import find_model, load_model, shipped_cards
from recsmith.costs.protocol import parts_of
from recsmith.costs.published import (
    COLLECTIVES,
    DEVICE,
    FITTED_DEVICE,
    HOST,
    LEARNED,
    error_of,
    measured,
    published,
)
from recsmith.learning.costs import read_groups
from recsmith.learning.costs.baselines import beside, cluster_of, formula_seconds
from recsmith.measuring.about import locate
from recsmith.plans.predicted_error import PublishedError, PublishedTimes
from recsmith.problems import Space
from recsmith.workloads import AccessProfile, load_workload

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """The script that compares the figures."""
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("public_gpu")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def found(bench: ModuleType) -> list[Any]:
    """All figures."""
    return bench.figures()


def test_table_is_what_the_figures_say(bench: ModuleType, found: list[Any]) -> None:
    assert bench.seen_by(bench.comparable(found)) == published()


@pytest.mark.parametrize("device", ["h100", "h200"])
def test_measured_kernels_are_those_that_the_cards_of_learned_models_tell(device: str) -> None:
    """`analytic` is held beside samples of the device; a card's figures are those of its samples."""
    seen, card = measured()[device], load_model(find_model(device))[1]
    assert card == shipped_cards()[device]
    assert (seen.figures, seen.error) == (card.samples, round(card.analytic_factor - 1, 2))
    assert card.beside["analytic"].factor == card.analytic_factor
    groups, _, origin = read_groups([locate(f"shipped:{device}")])
    cluster = cluster_of(origin)
    assert cluster is not None
    groups = groups.take(np.arange(len(groups)) % (len(groups) // 100) == 0)
    left = beside(groups.seconds, formula_seconds(groups, cluster)).spread
    assert left == pytest.approx(seen.spread, abs=0.045)  # with 300 groups 0.257 and 0.263
    found = error_of(plan_on(f"{device}:8"))
    assert f"device memory +{seen.error:.0%} ({seen.figures:,} measured groups)" in str(found)
    assert str(found).endswith(f"cost model neural:{device} knows its kernels")
    assert found.spread < found.share


def test_figures_have_a_source_and_a_draw(found: list[Any]) -> None:
    ids = [each.row["id"] for each in found]
    assert len(ids) == len(set(ids)) >= 180
    for each in found:
        row = each.row
        assert row["source"], row["id"]
        assert row["date"], row["id"]
        if row["round"] == "2":
            drawn = int(hashlib.sha256(row["id"].encode()).hexdigest(), 16) % 5 == 0
            assert drawn == each.held_back, row["id"]
    assert len({each.card for each in found if each.predicted is not None}) >= 6


def plan_on(cluster: str, kernel: str = "fused", cost_model: str = "analytic") -> recsmith.Plan:
    space = Space(types=("table_wise",), kernels=(kernel,))
    machines = load_cluster(cluster).with_memory(2**42)
    if machines.ddr_bytes_per_host:
        machines = replace(machines, ddr_bytes_per_host=2**44)
    return recsmith.plan(
        load_workload("criteo-1tb"), machines, planner="size_greedy", space=space, cost_model=cost_model
    ).plan  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "kernel", "checked", "unchecked"),
    [
        ("h100:8", "fused", {DEVICE, COLLECTIVES}, ()),
        ("h100:1", "fused", {DEVICE}, ()),
        ("h100:8", "fused_uvm", {HOST, COLLECTIVES}, ()),
        ("a100-80:8", "fused", {COLLECTIVES}, (DEVICE,)),
        ("l4:8", "fused", set(), (DEVICE, COLLECTIVES)),
    ],
)
def test_error_names_what_was_checked(cluster: str, kernel: str, checked: set[str], unchecked: tuple[str, ...]) -> None:
    found = error_of(plan_on(cluster, kernel))
    assert set(found.checked) == checked
    assert found.unchecked == unchecked
    assert ("not checked" in str(found)) == bool(unchecked)
    seen = [seen for part in {*checked, *unchecked} for seen in published()[part].values()]
    errors = [each.error for each in [*seen, *measured().values()]]
    assert min(errors) <= found.share <= max(errors)


def test_nothing_is_published_of_tables_on_disk() -> None:
    plan = plan_on("h100:8")
    on_disk = tuple(replace(each, compute_kernel="key_value", cache=None) for each in plan.placements)
    found = error_of(replace(plan, placements=on_disk, error=None))
    assert "tables on disk are not checked on h100" in str(found)
    assert found.share >= published()[COLLECTIVES]["h100"].error * 0.1


@pytest.mark.parametrize("cost_model", ["neural:h100", "best"])
def test_kernels_of_a_learned_model_are_off_as_its_card_says_and_links_as_published(cost_model: str) -> None:
    plan, held_out = plan_on("h100:8", cost_model=cost_model), shipped_cards()["h100"].held_out
    found = plan.error
    assert found is not None
    assert set(found.checked) == {LEARNED, COLLECTIVES}
    assert found.checked[LEARNED].error == held_out.median
    assert found.checked[COLLECTIVES] == published()[COLLECTIVES]["h100"]
    forward, backward, *links = parts_of(plan.cost).sum(axis=0).tolist()
    errors = (forward + backward) * held_out.median + sum(links) * found.checked[COLLECTIVES].error
    assert found.share == pytest.approx(errors / (forward + backward + sum(links)))
    assert f"measured kernels ±{held_out.median:.1%} ({held_out.samples:,} held-out groups)" in str(found)
    assert error_of(replace(plan, error=None)) == found  # as a plan of before
    assert found.known_by == ""


def test_what_a_learned_model_leaves_to_formulas_counts_by_its_seconds() -> None:
    """A table far beyond training is of formulas, the others are not."""
    access = AccessProfile(zipf=0.8)
    work = workload(table("a", 100_000, 64, 10.0, access=access), table("z", 4 * 10**11, 64, 10.0, access=access))
    machines = load_cluster("h100:2").with_memory(2**50)
    for name, parts in (("best", [LEARNED, DEVICE, COLLECTIVES]), ("neural:h100", [LEARNED, COLLECTIVES])):
        space = Space(types=("table_wise",), kernels=("fused",))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what neural:h100 extrapolates
            plan = recsmith.plan(work, machines, planner="size_greedy", space=space, cost_model=name).plan
        assert plan.error is not None
        assert list(plan.error.checked) == parts
    plan = recsmith.plan(work, machines, planner="size_greedy", space=space, cost_model="best").plan
    assert plan.error is not None
    learned, card = plan.error, shipped_cards()["h100"]
    assert learned.checked[DEVICE].error == round(card.beside["fitted"].spread, 2)
    assert card.held_out.median < learned.share < learned.checked[DEVICE].error


def test_a_plan_of_formulas_alone_under_best_speaks_of_no_learned_kernels() -> None:
    assert set(error_of(plan_on("h100:8", "fused_uvm", "best")).checked) == {HOST, COLLECTIVES}
    assert error_of(plan_on("a100-80:8", cost_model="best")) == error_of(plan_on("a100-80:8", cost_model="fitted"))


def test_a_plan_of_a_gpu_that_nobody_measured_says_whose_kernels_are_scaled() -> None:
    found = error_of(plan_on("b200:8", cost_model="best"))
    assert (found.scaled_from, found.unchecked) == ("h100", (DEVICE,))
    assert str(found).endswith("not checked on b200; kernels are h100's as measured, scaled by this device's figures")
    measured = error_of(plan_on("h200:8", cost_model="fitted"))
    assert measured.scaled_from == ""
    assert measured.checked[DEVICE].error == round(shipped_cards()["h200"].beside["fitted"].spread, 2)
    assert measured.known_by == "neural:h200"
    assert error_of(plan_on("v100-32:8", cost_model="fitted")).checked[DEVICE] == published()[FITTED_DEVICE]["v100-32"]


def test_other_models_and_processors_say_what_is_known_of_them() -> None:
    found = error_of(plan_on("h100:2", cost_model="torchrec"))
    assert found.checked[DEVICE].error == round(shipped_cards()["h100"].beside["torchrec"].factor - 1, 2)
    assert found.unchecked == (COLLECTIVES,)
    found = error_of(plan_on("cpu:2"))
    assert found.checked[DEVICE].error == round(shipped_cards()["cpu"].beside["analytic"].factor - 1, 2)
    assert str(found).endswith("collectives are not checked on cpu; cost model neural:cpu knows its kernels")


def test_a_model_that_nobody_held_beside_anything_says_so() -> None:
    found = error_of(replace(plan_on("a100-80:2"), cost_model="mine", error=None))
    assert (found.share, found.spread) == (0, 0)
    assert str(found) == "the step may be off: device memory and collectives are not checked on a100-80"
    gone = error_of(replace(plan_on("a100-80:2"), cost_model="neural:./gone.safetensors", error=None))
    assert DEVICE in gone.unchecked


def test_words_and_ties() -> None:
    found = PublishedError(device="h100", checked={DEVICE: PublishedTimes(figures=5, laboratories=1, error=0.12)},
                           unchecked=(), share=0.5, spread=0.12)  # fmt: skip
    assert str(found) == "the step may be off by about 50%: device memory ±12% (5 published times, one laboratory)"
    assert found.ties(0.12)
    assert not found.ties(0.13)
    far = PublishedTimes(figures=16, laboratories=1, error=14.77)
    found = PublishedError(device="l40s", checked={COLLECTIVES: far}, unchecked=(DEVICE,), share=11.8, spread=11.8)
    words = "collectives by a factor of 16 (16 published times, one laboratory); device memory is not checked on l40s"
    assert str(found) == f"the step may be off: {words}"
    assert found.off == "a factor of 13 or more"
    found = PublishedError(device="l4", checked={}, unchecked=(HOST, COLLECTIVES), share=1.5, spread=1.5)
    assert str(found) == "the step may be off: host memory and collectives are not checked on l4"
