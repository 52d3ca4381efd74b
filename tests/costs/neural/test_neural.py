"""Cost model `neural:`: one example by hand, laws of its heads, and what it refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import Case, brute_force, cluster, seeded, small_case, table, workload
from support.learned import TERMS, card, tensors, write_model

from recsmith.bounds import lower_bound
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import COST_MODELS, cost_model, price
from recsmith.costs.neural.files import Range, save_model, weights_of
from recsmith.costs.neural.heads import BLOCK, ConvexHead
from recsmith.costs.neural.inputs import PieceWork, inputs_of, work_of
from recsmith.costs.neural.model import NeuralEvaluator, is_device
from recsmith.errors import UsageError
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.plans import Placement, plan_from_raw, plan_to_raw
from recsmith.problems import Space, footprint_of
from recsmith.sharding import KERNEL_NAMES
from recsmith.workloads import AccessProfile

COUNTED = AccessProfile(reuse_bins=(0.0, 1.0, *[0.0] * 15), lookups=80, unique_rows=40)
TABLES = (table("a", 1000, 128, 5.0, access=COUNTED), table("b", 50, 16), table("c", 7, 8, pooling="mean"))
SEEDS = st.integers(0, 2**31)
SMALL = range(24)


def _cpus(local: int = 2, hosts: int = 1) -> Cluster:
    made = cluster(local, hosts, ddr_bytes_per_host=2**40)
    return replace(made, device=replace(made.device, kind="cpu"))


def _case(*tables: Any, on: Cluster | None = None, **fields: Any) -> Case:
    return Case(workload(*(tables or TABLES), **fields), on or _cpus(), Space(kernels=KERNEL_NAMES))


def _evaluator(folder: Path, case: Case | None = None, variant: str = "convex", **fields: Any) -> NeuralEvaluator:
    name = write_model(folder / "m.safetensors", variant, **fields)
    found = cost_model(name).compile((case or _case()).problem)
    assert isinstance(found, NeuralEvaluator)
    return found


def _sums(evaluator: NeuralEvaluator, seed: int, shape: tuple[int, ...]) -> Any:
    """Summed terms (..., k) over eight decades, some of nothing."""
    draw = np.random.default_rng(seed)
    sums = 10 ** draw.uniform(-7, 1, (*shape, 1 + TERMS + 4))
    sums[..., 0] = draw.integers(0, 5, shape)
    return np.where(sums[..., :1] > 0, sums, 0.0)


def _piece(*figures: float) -> PieceWork:
    """Ids, bags, different rows, rows and columns of a piece in fp32 under rowwise_adagrad."""
    ids, bags, unique, rows, width = (np.array([figure]) for figure in figures)
    return PieceWork(ids, bags, unique, rows, width, np.array([2]), np.array([0]))


# --- by hand ------------------------------------------------------------------------------------------------------


def test_a_table_on_one_device_by_hand(tmp_path: Path) -> None:
    """80 ids in 16 bags, 40 different rows of 128 columns."""
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    evaluator = _evaluator(tmp_path, case)
    placed = Placement(table="a", sharding_type="table_wise", compute_kernel="fused", ranks=(0,), widths=())
    footprint = footprint_of(case.problem, (placed,))
    busy, idle = price(evaluator, footprint).per_device
    piece = _piece(80.0, 16.0, 40.0, 1000.0, 128.0)
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
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    evaluator = _evaluator(tmp_path, case)
    mode = case.problem.find_mode(0, "row_wise", "fused")
    found = evaluator.terms(np.array([mode]), np.array([128]))[0]
    piece = _piece(40.0, 16.0, 20.0, 500.0, 128.0)
    assert found[1 : 1 + TERMS] == pytest.approx(
        evaluator.weights.terms(work_of(piece), inputs_of(piece))[0], rel=1e-12
    )


@pytest.mark.parametrize(("kind", "kernel"), [("data_parallel", "dense"), ("table_wise", "fused_uvm")])
def test_what_was_not_measured_costs_the_analytic_seconds_times_the_factor(
    tmp_path: Path, kind: str, kernel: str
) -> None:
    case = _case()
    evaluator = _evaluator(tmp_path, case, analytic_factor=3.0)
    mode, widths = np.array([case.problem.find_mode(0, kind, kernel)]), np.array([128])
    (found,), (analytic,) = evaluator.terms(mode, widths), evaluator.analytic.terms(mode, widths)
    assert (found[1 : 1 + TERMS] == 0).all()
    assert found[-4:-2] == pytest.approx([3 * max(analytic[1:3]), 3 * max(analytic[3:5])])
    assert found[-2:] == pytest.approx(analytic[-2:])


# --- laws of the heads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["convex", "linear", "free"])
def test_loads_and_compute_are_sums_of_the_parts(tmp_path: Path, variant: str) -> None:
    evaluator = _evaluator(tmp_path, variant=variant)
    sums = _sums(evaluator, 0, (3, BLOCK + 5))
    parts = evaluator.head(sums)
    assert (parts >= 0).all()
    assert (parts[sums[..., 0] == 0] == 0).all()
    assert evaluator.compute(sums) == pytest.approx(parts[..., :2].sum(axis=-1), rel=1e-9)
    phases = [parts[..., phase].sum(axis=-1) for phase in evaluator.phases]
    assert evaluator.loads(sums) == pytest.approx(np.stack(phases), rel=1e-9)


@settings(max_examples=30)
@given(SEEDS, st.floats(0, 1))
def test_the_convex_head_is_convex_and_monotone(seed: int, part: float) -> None:
    head = weights_of(tensors(seed=seed % 100), "convex", "").head
    draw = np.random.default_rng(seed)
    one, two = 10 ** draw.uniform(-7, 1, (2, 50, 1 + TERMS))
    mixed = part * head.total(one) + (1 - part) * head.total(two)
    assert (head.total(part * one + (1 - part) * two) <= mixed * (1 + 1e-9)).all()
    assert (head.total(one + two) >= np.maximum(head.total(one), head.total(two)) * (1 - 1e-12)).all()


@settings(max_examples=30)
@given(SEEDS)
def test_the_highest_plane_is_the_convex_head(seed: int) -> None:
    head = weights_of(tensors(seed=seed % 100), "convex", "").head
    assert isinstance(head, ConvexHead)
    sums = 10 ** np.random.default_rng(seed).uniform(-7, 1, (50, 1 + TERMS))
    highest = np.max([sums @ slopes + opening for slopes, opening in head.planes()], axis=0)
    assert head.total(sums) + head.launch.sum() == pytest.approx(highest, rel=1e-9)


def test_planes_of_the_evaluator_open_at_0_or_more_and_lie_below_its_loads(tmp_path: Path) -> None:
    for lift in (0.0, 1.0):
        evaluator = replace(_evaluator(tmp_path), lift=lift)
        sums = _sums(evaluator, 1, (500,))
        held, loads = sums[:, 0] > 0, evaluator.loads(sums)
        assert evaluator.planes
        for plane in evaluator.planes:
            below = plane.slopes @ sums.T + np.outer([plane.opening, 0.0], held)
            assert plane.opening >= 0
            assert (below <= loads * (1 + 1e-9)).all()
    assert len(evaluator.planes) == 2 ** (2 * 2)  # pyright: ignore[reportPossiblyUnbound]


def _small(seed: int) -> Case:
    """A case whose every plan can be listed, of types that measurements have."""
    case = small_case(seeded(seed), models=("analytic",))
    tables = tuple(replace(each, data_type="fp32") for each in case.workload.tables)
    work = replace(case.workload, tables=tables, optimizer="sgd")
    return replace(case, workload=work, cost_model="neural")


@pytest.mark.filterwarnings("ignore:cost model .* was trained on simulated")
@pytest.mark.parametrize("chunk", range(4))
def test_no_plan_costs_less_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Against every plan, with hinges and launches about as dear as the small tables."""
    for seed in SMALL[chunk::4]:
        path = tmp_path / f"{seed}.safetensors"
        launch = np.random.default_rng(seed).choice([0.0, 1e-7, 1e-6], 2)
        made = tensors(seed=seed, launch=launch, offsets=np.array([[1e-7, 1e-6], [3e-7, 1e-5]]))
        save_model(str(path), made, card(hardware="simulated:test", device="test, simulated"))
        monkeypatch.setitem(COST_MODELS, "neural", cost_model(f"neural:{path}"))
        case = _small(seed)
        least, bound = brute_force(case).least_s, lower_bound(case.evaluator).bound.value_s
        if least is not None:
            assert bound is not None
            assert bound <= least * (1 + 1e-9)


def test_the_plane_of_a_linear_head_is_all_of_it(tmp_path: Path) -> None:
    """So two groups never cost less than one of both, and planners take it apart into faces."""
    evaluator = _evaluator(tmp_path, variant="linear")
    (plane,) = evaluator.planes
    sums = _sums(evaluator, 2, (200,))
    opened = np.outer([plane.opening, 0.0], sums[:, 0] > 0)
    assert evaluator.loads(sums) == pytest.approx(plane.slopes @ sums.T + opened, rel=1e-9)
    modes, widths = evaluator.problem.pieces.mode, evaluator.problem.pieces.width
    assert linear_pieces_of(evaluator, evaluator.terms(modes, widths)) is not None


def test_a_free_head_has_no_planes_and_no_bound(tmp_path: Path) -> None:
    evaluator = _evaluator(tmp_path, variant="free")
    assert evaluator.planes == ()
    assert lower_bound(evaluator).bound.value_s is None


# --- what it refuses, and what it says ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "case", "words"),
    [
        ({"hardware": "cuda", "device": "an H100"}, {}, "on cuda (an H100), the cluster's device is 'test'"),
        ({"optimizers": ("sgd",)}, {}, "optimizers sgd, not rowwise_adagrad"),
        ({}, {"optimizer": "adam"}, "not adam; take another cost model"),
        ({"data_types": ("fp16",)}, {}, "data types fp16, not fp32"),
    ],
)  # fmt: skip
def test_another_device_optimizer_or_type_is_refused(tmp_path: Path, fields: Any, case: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        _evaluator(tmp_path, _case(**case), **fields)
    assert words in str(error.value)


def test_inputs_beyond_the_trained_range_are_said_with_the_factor(tmp_path: Path) -> None:
    case = _case(table("a", 1000, 128, 5.0), batch_size=8)
    most = {"rows": 250.0, "device ids": 32.0, "columns": 128.0}
    ranges = {name: Range(least=1.0, most=value) for name, value in most.items()}
    name = write_model(tmp_path / "m.safetensors", ranges=ranges)
    with pytest.warns(UserWarning, match=r"extrapolates .* rows 4 times, device ids 1\.25 times$"):
        found = cost_model(name).compile(case.problem)
    assert isinstance(found, NeuralEvaluator)
    assert found.extrapolated == {"rows": 4.0, "device ids": 1.25}


@pytest.mark.filterwarnings("ignore:cost model .* extrapolates")
def test_a_plan_says_where_its_price_extrapolates(tmp_path: Path) -> None:
    from recsmith.planning.simulate import simulate

    name = write_model(tmp_path / "m.safetensors", ranges={"rows": Range(least=1.0, most=250.0)})
    found = replace(_case(), cost_model=name).plan("size_greedy").plan
    assert found.extrapolated == {"rows": 4.0}
    again = plan_from_raw(plan_to_raw(found), "plan.json")
    assert (again.extrapolated, simulate(again).extrapolated) == ({"rows": 4.0}, {"rows": 4.0})
    assert simulate(found, "analytic").extrapolated == {}
    assert "extrapolated" not in plan_to_raw(simulate(found, "analytic"))


def test_a_model_of_a_formula_says_so(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", hardware="simulated:h100?noise=0.03", device="h100, simulated")
    with pytest.warns(UserWarning, match=r"trained on simulated:h100\?noise=0\.03, which is a formula"):
        cost_model(f"neural:{tmp_path / 'm.safetensors'}")


@pytest.mark.parametrize(
    ("hardware", "measured", "device", "same"),
    [
        ("cpu", "AMD EPYC", "cpu", True),
        ("cpu", "AMD EPYC", "h100", False),
        ("cuda", "NVIDIA A100-SXM4-40GB, 108 SMs", "a100-40", True),
        ("cuda", "NVIDIA A100-SXM4-40GB, 108 SMs", "a100-80", False),
        ("cuda", "NVIDIA A100-SXM4-80GB, 108 SMs, cache 41943040", "a100-80", True),
        ("cuda", "NVIDIA A100-SXM4-80GB, 108 SMs, cache 41943040", "a100-40", False),
        ("cuda", "NVIDIA H200, 132 SMs", "h200", True),
        ("cuda", "NVIDIA H200, 132 SMs", "cpu", False),
        ("simulated:h100?noise=0.1", "h100, simulated", "h100", True),
        ("simulated:h100", "h100, simulated", "h200", False),
    ],
)
def test_devices_are_known_by_their_words(hardware: str, measured: str, device: str, same: bool) -> None:
    assert is_device(hardware, measured, load_cluster(device).device) == same


def test_a_plan_by_a_learned_model_is_priced_again_by_its_name(tmp_path: Path) -> None:
    from recsmith.planning.simulate import simulate

    case = replace(_case(), cost_model=write_model(tmp_path / "m.safetensors"))
    found = case.plan("size_greedy").plan
    assert found.cost_model == case.cost_model
    assert simulate(found).cost == found.cost
