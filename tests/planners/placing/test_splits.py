"""Splitting as an action: shapes, episodes, the policy of what is split, and plans by it."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from support.cases import cluster, table, workload

from recsmith._types import Floats, Ints
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.costs.weight_files import find_weights
from recsmith.errors import CorruptFile, NoPlanFound, UsageError
from recsmith.learning.policies.tasks import SPACE, TESTING, SizeRow, draw_placement_tasks
from recsmith.planners.placing.shapes import shapes_of
from recsmith.planners.placing.split_episodes import PricedShapes
from recsmith.planners.placing.split_policy import SHAPES, SplitPolicy, load_splits, shipped_splits
from recsmith.planners.search.device_state import NOWHERE
from recsmith.planning import find_planner
from recsmith.problems import Space, build_problem, fits

pytestmark = pytest.mark.filterwarnings("ignore:.*which is a formula", "ignore:.*trained on")
SHIPPED = find_weights("simulated-h100", "", "", ["simulated-h100"], "splits-")


def unseen(devices: int = 4, tables: int = 20, number: int = 1) -> list[Evaluator]:
    """Tasks of tables that no policy saw, priced by the model that the shipped policy learned under."""
    row = SizeRow(devices=devices, tables=tables)
    drawn = draw_placement_tasks(row, number, 5, "h100", 65_536, TESTING).tasks
    return [cost_model("neural:simulated-h100").compile(build_problem(t.workload, t.cluster, SPACE)) for t in drawn]


def tight(slack: float, seed: int, model: str = "analytic") -> Evaluator:
    """Tables of many sizes on three devices that together have `slack` times the memory of all."""
    random = np.random.default_rng(seed)
    tables = [
        table(
            f"t{i}", int(random.integers(1000, 60_000)), 4 * int(random.integers(1, 33)), float(random.uniform(1, 60))
        )
        for i in range(9)
    ]
    work = workload(*tables, batch_size=1024, optimizer="sgd")
    roomy = build_problem(work, cluster(local=3), SPACE)
    modes = np.array([roomy.find_mode(t, "table_wise", "fused") for t in range(9)])
    size = roomy.memory(modes, roomy.demand.dim)[0].device
    where = cluster(local=3).with_memory(int(slack * size.sum() / 3))
    return cost_model(model).compile(build_problem(work, where, SPACE))


@given(st.integers(0, 50), st.floats(0.9, 2.0), st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_an_episode_costs_what_its_plan_costs_and_keeps_memory(seed: int, slack: float, often: float) -> None:
    evaluator, random = tight(slack, seed), np.random.default_rng(seed)
    shapes = shapes_of(evaluator.problem, evaluator)
    assert shapes is not None
    ended = PricedShapes(shapes, evaluator).play(3, lambda rows, *_: random.random(len(rows)) < often)
    for episode in range(3):
        made = ended.episodes.assignment(episode)
        assert ended.episodes.dead[episode] == (made.target == NOWHERE).any() == np.isinf(ended.step_s[episode])
        if made.complete:
            footprint = made.footprint(evaluator.problem)
            assert fits(evaluator.problem, footprint)
            assert ended.step_s[episode] == pytest.approx(step_seconds(evaluator, footprint), rel=1e-9)


def test_a_table_goes_through_its_shapes_and_decisions_are_all_that_was_free() -> None:
    evaluator = unseen()[0]
    shapes = shapes_of(evaluator.problem, evaluator)
    assert shapes is not None
    priced = PricedShapes(shapes, evaluator)
    never, always = (priced.play(1, lambda rows, *_, each=each: np.full(len(rows), each)) for each in (False, True))
    pieces = [len(ended.episodes.assignment(0).target) for ended in (never, always)]
    assert len(evaluator.problem.tables) <= pieces[0] < pieces[1]
    assert len(never.decisions.split) <= len(evaluator.problem.tables)
    assert not never.decisions.split.any()
    assert always.decisions.split.all()
    made = always.made_in(0)
    again = priced.play(1, lambda rows, s, _: np.isin(np.full(len(rows), s), made.shape))
    assert again.step_s[0] == always.step_s[0]


def test_on_a_cpu_every_table_is_in_one_kernel() -> None:
    work = workload(*(table(f"t{i}", 50_000, 32, float(i + 1)) for i in range(6)), batch_size=512, optimizer="sgd")
    for name, kernels in (("cpu:2", 1), ("h100:2", 2)):
        evaluator = cost_model("analytic").compile(build_problem(work, load_cluster(name), SPACE))
        shapes = shapes_of(evaluator.problem, evaluator)
        assert shapes is not None
        assert max(len(set(groups.tolist())) for groups in PricedShapes(shapes, evaluator).group) == kernels


def test_the_policy_sees_only_what_is_relative() -> None:
    evaluator = unseen(2, 20)[0]
    shapes = shapes_of(evaluator.problem, evaluator)
    assert shapes is not None
    seen: list[Floats] = []

    def decide(rows: Ints, _: int, figures: Floats) -> Any:
        seen.append(figures)
        return np.zeros(len(rows), dtype=bool)

    PricedShapes(shapes, evaluator).play(2, decide)
    assert np.isfinite(np.concatenate(seen)).all()
    assert np.abs(np.concatenate(seen)).max() < 16


def test_more_episodes_are_never_worse_and_what_ships_is_ahead_of_longest_first() -> None:
    ratios: list[float] = []
    for evaluator in [*unseen(4, 20, 3), *unseen(4, 50, 2)]:
        words = ("longest_first", "dreamshard?splits=1", "dreamshard?splits=8")
        longest, one, many = (find_planner(word).plan(evaluator.problem, evaluator) for word in words)
        assert one.total_s >= many.total_s == step_seconds(evaluator, many.footprint)
        assert fits(evaluator.problem, many.footprint)
        assert many.left_out == ()
        ratios.append(many.total_s / longest.total_s)
    assert np.mean(ratios) < 0.99  # it learned under an earlier neural:simulated-h100


def test_whole_splits_no_table_that_fits_a_device() -> None:
    evaluator = unseen(8, 20)[0]
    found, one = (find_planner(f"dreamshard?whole&splits={n}").plan(evaluator.problem, evaluator) for n in (8, 1))
    assert len(found.footprint.target) == len(evaluator.problem.tables)
    assert found.total_s <= one.total_s


def test_where_no_episode_finds_room_tables_go_longest_first_and_the_report_says_so() -> None:
    note = "dreamshard?splits=1: the policy found no room for every table; they went longest first"
    seen: set[tuple[str, ...]] = set()
    for seed in range(8):
        evaluator = tight(1.05, seed)
        with suppress(NoPlanFound):
            found = find_planner("dreamshard?splits=1").plan(evaluator.problem, evaluator)
            assert fits(evaluator.problem, found.footprint)
            seen.add(found.left_out)
    assert seen == {(), (note,)}


def test_a_word_says_how_many_and_not_what_else_places() -> None:
    for word in ("dreamshard?splits=4&samples=2", "dreamshard?longest_first&splits=4"):
        with pytest.raises(UsageError, match="splits has placements of its own"):
            find_planner(word)
    for word in ("dreamshard?splits=0", "dreamshard?splits=x", "autoshard?splits=4"):
        with pytest.raises(UsageError, match="write "):
            find_planner(word)


def test_what_ships_is_small_and_a_policy_of_ones_own_is_taken(tmp_path: Path) -> None:
    assert SHIPPED.stat().st_size < 10_000
    policy, card = load_splits("simulated-h100")
    assert card.ahead > 0.02
    own = tmp_path / "mine.safetensors"
    shutil.copy(SHIPPED, own)
    evaluator = unseen()[0]
    ours, named = (
        find_planner(word).plan(evaluator.problem, evaluator)
        for word in ("dreamshard?splits=8", f"dreamshard:{own}?splits=8")
    )
    assert ours.total_s == named.total_s
    assert {name: value.shape for name, value in policy.tensors.items()} == SHAPES


def test_a_damaged_policy_and_one_of_another_kind_are_refused(tmp_path: Path) -> None:
    evaluator = unseen()[0]
    bad = tmp_path / "bad.safetensors"
    tensors = load_file(SHIPPED)
    with safe_open(SHIPPED, "np") as file:
        card = file.metadata()
    for value in ([np.nan], [1e6], [0.0, 0.0]):
        save_file({**tensors, "split1_bias": np.array(value, dtype=np.float32)}, bad, card)
        with pytest.raises(CorruptFile, match=r"tensor 'split1_bias' .*recsmith learn splits"):
            find_planner(f"dreamshard:{bad}?splits=2").plan(evaluator.problem, evaluator)
    with pytest.raises(CorruptFile, match="expected `recsmith/splits-card/1`"):
        load_splits(str(find_weights("simulated-h100", "", "", ["simulated-h100"], "dreamshard-")))
    with pytest.raises(UsageError, match="no learned policy of what is split is called 'nobody'"):
        find_planner("dreamshard:nobody?splits=2").plan(evaluator.problem, evaluator)


def test_one_policy_serves_every_cluster() -> None:
    work = workload(*(table(f"t{i}", 50_000, 128, float(i + 1)) for i in range(12)), batch_size=4096, optimizer="sgd")
    every = Space(types=("table_wise", "column_wise", "row_wise", "data_parallel"), kernels=("fused", "dense"))
    for name, space in (("cpu:4", SPACE), ("h100:8x2", every)):
        problem = build_problem(work, load_cluster(name), space)
        found = find_planner("dreamshard?splits=4").plan(problem, cost_model().compile(problem))
        assert found.left_out == ()
        assert fits(problem, found.footprint)


def test_a_cpu_has_a_policy_of_its_own() -> None:
    gpu, cpu = (shipped_splits(kind) for kind in ("cuda", "cpu"))
    assert isinstance(gpu, SplitPolicy)
    assert (load_splits("cpu")[1].device, load_splits("simulated-h100")[1].device) == ("cpu", "h100")
    assert not np.array_equal(gpu.tensors["split0"], cpu.tensors["split0"])
