"""The evaluator of learned cost models: an example by hand, planes, and bounds against every plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.amounts import seeds
from support.cases import OFF_DISK, Case, brute_force, seeded, small_case, table
from support.learned import TERMS, card, tensors, write_model
from support.learned_cases import COUNTED, case_of, evaluator_of, piece_of, sums_of

from recsmith.bounds import lower_bound
from recsmith.costs import COST_MODELS, cost_model, price
from recsmith.costs.neural.files import Variant, save_model, weights_of
from recsmith.costs.neural.heads import BLOCK
from recsmith.costs.neural.inputs import inputs_of, work_of
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.planning import plan
from recsmith.plans import Placement
from recsmith.problems import footprint_of


def test_a_table_on_one_device_by_hand(tmp_path: Path) -> None:
    """80 ids in 16 bags, 40 different rows of 128 columns."""
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    evaluator = evaluator_of(tmp_path, case)
    placed = Placement(table="a", sharding_type="table_wise", compute_kernel="fused", ranks=(0,), widths=())
    footprint = footprint_of(case.problem, (placed,))
    busy, idle = price(evaluator, footprint).per_device
    piece = piece_of(80.0, 16.0, 40.0, 1000.0, 128.0)
    weights = weights_of(
        {name: value.astype(np.float32).astype(float) for name, value in tensors().items()}, "convex", ""
    )
    sums = np.concatenate([[1.0], weights.terms(work_of(piece), inputs_of(piece))[0]])
    head: Any = weights.head
    for i, seconds in enumerate((busy.forward_compute_s, busy.backward_compute_s)):
        rising = np.maximum(head.hinges[i] @ sums - head.offsets[i], 0).sum()
        assert seconds == pytest.approx(head.launch[i] + head.linear[i] @ sums + rising, rel=1e-12)
    assert idle.forward_compute_s == idle.backward_compute_s == 0
    assert busy.forward_comm_s > idle.forward_comm_s > 0


def test_a_block_of_rows_is_a_kernel_with_its_share(tmp_path: Path) -> None:
    """Row-wise on two devices: 40 of 80 ids, all 16 bags, 20 of 40 rows, half the table."""
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    evaluator = evaluator_of(tmp_path, case)
    mode = case.problem.find_mode(0, "row_wise", "fused")
    found = evaluator.terms(np.array([mode]), np.array([128]))[0]
    piece = piece_of(40.0, 16.0, 20.0, 500.0, 128.0)
    assert found[1 : 1 + TERMS] == pytest.approx(
        evaluator.weights.terms(work_of(piece), inputs_of(piece))[0], rel=1e-12
    )


@pytest.mark.parametrize(("kind", "kernel"), [("data_parallel", "dense"), ("table_wise", "fused_uvm")])
def test_what_was_not_measured_costs_the_analytic_seconds_times_the_factor(
    tmp_path: Path, kind: str, kernel: str
) -> None:
    case = case_of()
    evaluator = evaluator_of(tmp_path, case, analytic_factor=3.0)
    mode, widths = np.array([case.problem.find_mode(0, kind, kernel)]), np.array([128])
    (found,), (analytic,) = evaluator.terms(mode, widths), evaluator.analytic.terms(mode, widths)
    assert (found[1 : 1 + TERMS] == 0).all()
    assert found[-4:-2] == pytest.approx([3 * max(analytic[1:3]), 3 * max(analytic[3:5])])
    assert found[-2:] == pytest.approx(analytic[-2:])


@pytest.mark.parametrize("variant", ["convex", "corrected", "monotone", "linear"])
def test_maxima_and_shares_are_the_loads(tmp_path: Path, variant: str) -> None:
    evaluator = evaluator_of(tmp_path, variant=variant)
    sums = sums_of(evaluator, 1, (300,))
    held = sums[sums[:, 0] > 0]
    assert evaluator.group_loads is not None
    assert evaluator.group_loads.loads(held) == pytest.approx(evaluator.loads(held), rel=1e-5)


def test_a_product_has_no_maxima(tmp_path: Path) -> None:
    assert evaluator_of(tmp_path, variant="free").group_loads is None


@pytest.mark.parametrize("variant", ["convex", "corrected", "monotone", "linear", "free"])
def test_loads_and_compute_are_sums_of_the_parts(tmp_path: Path, variant: str) -> None:
    evaluator = evaluator_of(tmp_path, variant=variant)
    sums = sums_of(evaluator, 0, (3, BLOCK + 5))
    parts = evaluator.head(sums)
    assert (parts >= 0).all()
    assert (parts[sums[..., 0] == 0] == 0).all()
    assert evaluator.compute(sums) == pytest.approx(parts[..., :2].sum(axis=-1), rel=1e-9)
    phases = [parts[..., phase].sum(axis=-1) for phase in evaluator.step_rule.phases]
    assert evaluator.loads(sums) == pytest.approx(np.stack(phases), rel=1e-9)


def test_planes_of_the_evaluator_open_at_0_or_more_and_lie_below_its_loads(tmp_path: Path) -> None:
    for lift in (0.0, 1.0):
        evaluator = replace(evaluator_of(tmp_path), lift=lift)
        sums = sums_of(evaluator, 1, (500,))
        held, loads = sums[:, 0] > 0, evaluator.loads(sums)
        assert evaluator.planes
        for plane in evaluator.planes:
            below = plane.slopes @ sums.T + np.outer([plane.opening, 0.0], held)
            assert plane.opening >= 0
            assert (below <= loads * (1 + 1e-9)).all()
    assert len(evaluator.planes) == 2 ** (2 * 2)  # pyright: ignore[reportPossiblyUnbound]


def test_planes_of_a_monotone_model_lie_below_any_pieces_and_count_what_they_bear_alone(tmp_path: Path) -> None:
    """Of shares that matter: gates open at microseconds, as the pieces take."""
    draw, gaps = np.random.default_rng(0), list[float]()
    for variant in ("corrected", "monotone"):
        evaluator = evaluator_of(tmp_path, case_of(batch_size=4096), variant)
        pieces = evaluator.problem.pieces
        terms = evaluator.terms(pieces.mode, pieces.width)
        several = draw.integers(0, 2, (500, len(terms))) * draw.integers(1, 100, (500, len(terms)))
        sums = several @ terms
        loads, (first, *_) = evaluator.loads(sums), evaluator.planes
        below = np.max([each.slopes[0] @ sums.T for each in evaluator.planes], axis=0) + first.opening * (
            sums[:, 0] > 0
        )
        assert (below <= loads[0] * (1 + 1e-9)).all()
        gaps.append(float((1 - below / np.maximum(loads[0], 1e-300))[sums[:, 0] > 0].mean()))
    assert gaps[1] < 0.5 * gaps[0]
    assert linear_pieces_of(evaluator, terms) is None  # pyright: ignore[reportPossiblyUnbound]


def _small(seed: int) -> Case:
    """A case whose every plan can be listed, of types that measurements have."""
    case = small_case(seeded(seed), models=("analytic",))
    tables = tuple(replace(each, data_type="fp32") for each in case.workload.tables)
    work = replace(case.workload, tables=tables, optimizer="sgd")
    kernels = tuple(name for name in case.space.kernels if name in OFF_DISK)  # sgd runs none on disk
    return replace(case, workload=work, space=replace(case.space, kernels=kernels), cost_model="neural")


@pytest.mark.filterwarnings("ignore:cost model .* was trained on simulated")
@pytest.mark.parametrize("variant", ["convex", "monotone"])
def test_no_plan_costs_less_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: Variant) -> None:
    """Against every plan, with hinges and launches about as dear as the small tables."""
    asked, every = 0, seeds(8, 16)
    for seed in every:
        path = tmp_path / f"{seed}.safetensors"
        launch = np.random.default_rng(seed).choice([0.0, 1e-7, 1e-6], 2)
        hinges = {"offsets": np.array([[1e-7, 1e-6], [3e-7, 1e-5]])} if variant == "convex" else {}
        made = tensors(variant, seed, launch=launch, **hinges)
        save_model(str(path), made, card(variant=variant, hardware="simulated:test", device="test, simulated"))
        monkeypatch.setitem(COST_MODELS.places, "neural", cost_model(f"neural:{path}"))
        case = _small(seed)
        least, bound = brute_force(case).least_s, lower_bound(case.evaluator).bound.value_s
        if least is not None:
            asked += 1
            assert bound is not None
            assert bound <= least * (1 + 1e-9)
    assert asked > len(every) / 3


def test_the_plane_of_a_linear_head_is_all_of_it(tmp_path: Path) -> None:
    """So two groups never cost less than one of both, and planners take it apart into linear pieces."""
    evaluator = evaluator_of(tmp_path, variant="linear")
    (plane,) = evaluator.planes
    sums = sums_of(evaluator, 2, (200,))
    opened = np.outer([plane.opening, 0.0], sums[:, 0] > 0)
    assert evaluator.loads(sums) == pytest.approx(plane.slopes @ sums.T + opened, rel=1e-9)
    modes, widths = evaluator.problem.pieces.mode, evaluator.problem.pieces.width
    assert linear_pieces_of(evaluator, evaluator.terms(modes, widths)) is not None


def test_a_free_head_has_no_planes_and_no_bound(tmp_path: Path) -> None:
    evaluator = evaluator_of(tmp_path, variant="free")
    assert evaluator.planes == ()
    assert lower_bound(evaluator).bound.value_s is None


def test_models_without_planes_are_planned_by_what_pieces_cost_alone(tmp_path: Path) -> None:
    problem, model = evaluator_of(tmp_path).problem, write_model(tmp_path / "free.safetensors", "free")
    work = replace(problem.workload, tables=problem.workload.tables[:2])
    found = {
        name: plan(work, problem.cluster, cost_model=model, planner=name, iterations=20).plan  # auto enumerates more
        for name in ("auto", "ldm", "cost_greedy")
    }
    assert 0 < found["auto"].cost.total_s <= min(each.cost.total_s for each in found.values()) < np.inf
    assert found["auto"].gap is None
