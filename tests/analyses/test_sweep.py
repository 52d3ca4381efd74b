"""A sweep is one plan a point: its figures are those of `plan`, failures stay alone, and the knee is what it says."""

import signal
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith.analyses.scaling import Fixed, Point, Sweep, with_knees
from recsmith.analyses.sweep import sweep
from recsmith.clusters import sharding_group
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.planning import PLANNERS, plan
from recsmith.problems import Space
from recsmith.workloads import Feature, Table, Workload

WORK = workload(
    table("hot", 3000, 64, 20.0), table("wide", 20_000, 128, 1.0), table("small", 50, 16, 1.0), batch_size=64
)  # fmt: skip
HOST = cluster(local=4)
FAST: dict[str, Any] = {"planner": "cost_greedy", "cost_model": "torchrec", "space": Space(widths="torchrec")}


def swept(**words: Any) -> Sweep:
    """A sweep with a fast planner."""
    arguments: dict[str, Any] = {"devices": (2, 8), "device": HOST, **FAST, **words}
    return sweep(WORK, **arguments)


def shapes(found: Sweep) -> list[tuple[int, int, int, int]]:
    return [(each.devices, each.hosts, each.batch_size, each.global_batch_size) for each in found.points]


# --- the grid -----------------------------------------------------------------------------------------------------


def test_counts_up_to_a_host_share_it_and_more_are_whole_hosts():
    assert shapes(swept(devices=(1, 3, 4, 8, 12))) == [
        (1, 1, 64, 64), (3, 1, 64, 192), (4, 1, 64, 256), (8, 2, 64, 512), (12, 3, 64, 768),
    ]  # fmt: skip


def test_points_go_by_device_then_batch_then_count_and_duplicates_are_gone():
    other = replace(HOST, device=replace(HOST.device, name="another"))
    found = swept(devices=(8, 2, 8), device=(HOST, other, HOST), batch_sizes=(32, 16, 32))
    order = [(each.device, each.batch_size, each.devices) for each in found.points]
    assert order == [(name, batch, count) for name in ("test", "another") for batch in (16, 32) for count in (2, 8)]


def test_a_global_batch_is_shared_by_all_devices():
    found = swept(devices=(1, 4, 8), global_batches=(64, 16))
    assert found.fixed == "global_batch_size"
    assert [each[2:] for each in shapes(found)] == [(16, 16), (4, 16), (2, 16), (64, 64), (16, 64), (8, 64)]


def test_devices_are_clusters_names_or_files_and_their_hosts_are_what_is_swept():
    by_name = sweep(WORK, devices=(8,), device="h100:4x12", **FAST).points
    assert [(each.device, each.per_host, each.hosts) for each in by_name] == [("h100", 4, 2)]
    both = sweep(WORK, devices=(8,), device=("h100", "h100:4"), **FAST).points
    assert [(each.per_host, each.hosts) for each in both] == [(8, 1), (4, 2)]
    assert swept(device=replace(HOST, hosts=9)).plans == swept().plans


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"devices": ()}, "at least one number of devices"),
        ({"devices": (8, 0)}, "number of devices 0 cannot be"),
        ({"devices": (-4,)}, "number of devices -4 cannot be"),
        ({"devices": (8.0,)}, "number of devices 8.0 cannot be"),
        ({"devices": "8"}, "number of devices '8' cannot be"),
        ({"devices": (6,)}, "not whole hosts of 4 'test'; ask for 4 or 8 devices, or for hosts of 2"),
        ({"devices": (5,)}, "ask for 4 or 8 devices$"),
        ({"devices": (4 * 65_536,)}, "at most 65,536"),
        ({"device": ()}, "at least one device"),
        ({"device": "h10"}, "did you mean 'h100'"),
        ({"device": replace(HOST, hbm_bytes=(1,) * 4)}, "lists the memory of each rank"),
        ({"device": (HOST, replace(HOST, reserve_bytes=1))}, "two clusters of the sweep are called 'test'"),
        ({"batch_sizes": ()}, "at least one batch size"),
        ({"batch_sizes": (0,)}, "batch size 0 cannot be"),
        ({"global_batches": ()}, "at least one global batch"),
        ({"global_batches": (60,)}, "60 samples is no multiple of 8 devices; a batch of 56 or 64 suits"),
        ({"global_batches": (5,)}, "no multiple of 2 devices; a batch of 8 suits"),
        ({"global_batches": (64,), "batch_sizes": (8,)}, "not both"),
        ({"group_sizes": (0,)}, "group size 0 cannot be"),
        ({"group_sizes": ()}, "at least one group size"),
        ({"device": sharding_group(cluster(4, 2), 4), "group_sizes": (4,)}, "is a sharding group of a 2D job"),
        ({"planner": "cost_gredy"}, "did you mean 'cost_greedy'"),
        ({"cost_model": "torchrek"}, "did you mean 'torchrec'"),
    ],
)
def test_bad_input_is_refused_before_any_plan(words: dict[str, Any], said: str):
    def never(_: Point) -> None:
        raise AssertionError

    with pytest.raises(UsageError, match=said):
        swept(on_point=never, **words)


@given(st.integers(1, 10_000), st.lists(st.sampled_from((1, 2, 3, 4, 8, 12, 20)), min_size=1))
def test_the_global_batches_that_a_refusal_names_suit_all_counts(batch: int, counts: list[int]):
    from recsmith.analyses.sweep import grid_of

    try:
        grid_of((HOST,), counts, "global_batch_size", (batch,))
    except UsageError as error:
        named = str(error).partition("a batch of ")[2].removesuffix(" suits all counts")
        for other in named.split(" or "):
            assert grid_of((HOST,), counts, "global_batch_size", (int(other),))
    else:
        assert all(batch % count == 0 for count in counts)


# --- figures ------------------------------------------------------------------------------------------------------


def test_a_point_holds_the_figures_of_its_plan():
    found = swept(batch_sizes=(32,))
    for point in found.points:
        made = plan(WORK.with_batch_size(32), cluster(*((4, 2) if point.devices == 8 else (2, 1))), **FAST).plan
        step = made.cost.total_s
        assert found.plans[point.digest or ""] == made
        assert (point.total_s, point.bound_s, point.gap) == (step, made.bound.value_s, made.gap)
        assert point.global_batch_size == 32 * point.devices
        assert point.samples_per_s == pytest.approx(32 * point.devices / step)
        assert point.device_s_per_step == pytest.approx(point.devices * step)
        assert point.device_s_per_million == pytest.approx(1e6 * step / 32)
        assert (point.outcome, point.error, point.truncated) == ("planned", None, False)
        fullest = max(device.hbm_bytes for device in made.cost.per_device)
        assert point.memory_share == pytest.approx(fullest / 2**40)
    assert (found.planner, found.cost_model) == ("cost_greedy", "torchrec")
    assert {made.bound.space for made in found.plans.values()} == {found.space}


def test_a_sweep_is_the_same_each_time_but_for_its_seconds():
    first, second = (swept(planner="random", seed=3) for _ in range(2))
    untimed = [[replace(each, elapsed_s=0.0) for each in found.points] for found in (first, second)]
    assert untimed[0] == untimed[1]
    assert (first.knees, first.plans) == (second.knees, second.plans)


def test_limits_and_spaces_reach_every_plan():
    found = swept(planner="auto", iterations=1, space=Space(types=("row_wise",)))
    assert {each.sharding_type for made in found.plans.values() for each in made.placements} == {"row_wise"}
    cut = swept(planner="auto", time_limit_s=1e-9)
    assert [each.truncated for each in cut.points] == [True, True]


def test_a_step_that_costs_nothing_has_no_rate():
    idle = workload(table("a", 100, 8, 0.0), batch_size=8)
    found = sweep(idle, devices=(1, 2), device=HOST, **FAST)
    assert [each.total_s for each in found.points] == [0.0, 0.0]
    assert [each.samples_per_s for each in found.points] == [None, None]
    assert [(knee.devices, knee.next_speedup) for knee in found.knees] == [(1, None)]


def test_group_sizes_are_plans_for_one_group_with_the_samples_of_all_devices():
    words: dict[str, Any] = {"cost_model": "analytic", "group_sizes": (8, 4, 2), "steps_per_sync": 5}
    found = swept(devices=(8, 4), **words)
    order = [(each.group_size, each.devices, each.outcome) for each in found.points]
    assert order == [
        (2, 4, "planned"), (2, 8, "planned"), (4, 4, "planned"), (4, 8, "planned"),
        (8, 4, "refused"), (8, 8, "planned"),
    ]  # fmt: skip
    assert "groups of 8 devices do not divide the job's 4" in (found.points[4].error or "")
    assert [each.sync_s is None for each in found.points] == [False, False, True, False, True, True]
    for point in found.points:
        if point.total_s is not None:
            made = found.plans[point.digest or ""]
            assert (made.cluster.world_size, made.cluster.job_world_size) == (point.group_size, point.devices)
            assert point.samples_per_s == pytest.approx(64 * point.devices / point.total_s)
    assert [knee.group_size for knee in found.knees] == [2, 4]


# --- failures -----------------------------------------------------------------------------------------------------


def test_what_has_no_room_says_its_proven_minimum_and_loses_nobody_else():
    found = swept(devices=(1, 2, 4), device=replace(HOST, hbm_bytes=8 * 2**20), space=Space())
    assert [each.outcome for each in found.points] == ["infeasible", "planned", "planned"]
    first = found.points[0]
    assert "no plan exists below" in (first.error or "")
    assert "nor below 2 devices" in (first.error or "")
    assert (first.total_s, first.digest, first.samples_per_s, first.knee) == (None, None, None, False)
    assert set(found.plans) == {each.digest for each in found.points[1:]}


class Moody:
    """A planner that raises what it is told to, by the number of devices."""

    name = "moody"

    def __init__(self, moods: dict[int, BaseException]) -> None:
        self.moods = moods

    def plan(self, problem: Any, evaluator: Any, **words: Any) -> Any:
        mood = self.moods.get(problem.cluster.world_size)
        if mood:
            raise mood
        return PLANNERS["cost_greedy"].plan(problem, evaluator, **words)


def moody(monkeypatch: pytest.MonkeyPatch, moods: dict[int, BaseException], **words: Any) -> Sweep:
    monkeypatch.setitem(PLANNERS.places, "moody", Moody(moods))
    return swept(planner="moody", **words)


@pytest.mark.parametrize(
    ("mood", "outcome", "said"),
    [
        (NoPlanFound("it is dark here"), "not_found", "it is dark here"),
        (Infeasible("proved"), "infeasible", "proved"),
        (UsageError("too many ranks"), "refused", "too many ranks"),
        (MemoryError(), "not_found", "ran out of memory; allow fewer types"),
    ],
)
def test_a_point_that_fails_does_not_lose_the_others(
    monkeypatch: pytest.MonkeyPatch, mood: BaseException, outcome: str, said: str
):
    found = moody(monkeypatch, {4: mood}, devices=(2, 4, 8))
    assert [each.outcome for each in found.points] == ["planned", outcome, "planned"]
    assert said in (found.points[1].error or "")
    assert (found.left, len(found.plans)) == (0, 2)


def test_points_without_any_plan_are_no_error(monkeypatch: pytest.MonkeyPatch):
    found = moody(monkeypatch, {2: NoPlanFound("dark"), 8: Infeasible("proved")})
    assert [each.outcome for each in found.points] == ["not_found", "infeasible"]
    assert (found.plans, found.knees) == ({}, ())
    assert found.space == FAST["space"].describe()


def test_a_rule_that_every_point_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match="the first"):
        moody(monkeypatch, {2: UsageError("the first"), 8: UsageError("the second")})


# --- interrupts ---------------------------------------------------------------------------------------------------


class Patient(Moody):
    """A planner that is interrupted when it holds a plan, which it then gives."""

    def plan(self, problem: Any, evaluator: Any, **words: Any) -> Any:
        found = super().plan(problem, evaluator, **words)
        if problem.cluster.world_size != 4:
            return found
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return replace(found, truncated=True)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_search_keeps_its_plan_and_ends_the_sweep(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PLANNERS.places, "moody", Patient({}))
    for limit in (None, 1e-9):  # a limit too cuts searches short, but not the sweep
        found = swept(planner="moody", devices=(2, 4, 8), time_limit_s=limit)
        assert [(each.devices, each.truncated) for each in found.points] == [(2, False), (4, True)]
        assert found.left == 1


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_between_plans_keeps_the_points_done(monkeypatch: pytest.MonkeyPatch):
    found = moody(monkeypatch, {4: KeyboardInterrupt()}, devices=(2, 4, 8))
    assert [each.devices for each in found.points] == [2]
    assert found.left == 2


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_before_the_first_point_is_ctrl_c(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(KeyboardInterrupt):
        moody(monkeypatch, {2: KeyboardInterrupt()})


def test_a_caller_hears_of_each_point_and_may_end_the_sweep():
    heard: list[Point] = []

    def hear(point: Point) -> bool:
        heard.append(point)
        return point.devices == 4

    found = swept(devices=(2, 4, 8), on_point=hear)
    assert [each.devices for each in heard] == [each.devices for each in found.points] == [2, 4]
    assert found.left == 1


# --- the knee -----------------------------------------------------------------------------------------------------


def point(devices: int, step: float | None, bound: float | None = None, **changes: Any) -> Point:
    """A point at a global batch of 1,000 samples."""
    made = Point(
        device="d", per_host=8, devices=devices, hosts=1, batch_size=1000 // devices, global_batch_size=1000,
        outcome="planned" if step is not None else "infeasible", error=None, digest="x", total_s=step, bound_s=bound,
        gap=None, memory_share=0.5, samples_per_s=1000 / step if step else None, device_s_per_step=None,
        device_s_per_million=None, elapsed_s=0.1, truncated=False, knee=False,
    )  # fmt: skip
    return replace(made, **changes)


def knees(*points: Point, fixed: Fixed = "global_batch_size") -> list[tuple[int, bool]]:
    marked, found = with_knees(points, fixed)
    assert [each.devices for each in marked if each.knee] == [knee.devices for knee in found]
    return [(knee.devices, knee.proven) for knee in found]


STEPS = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=6)


@given(STEPS)
def test_no_count_gives_more_efficiency_for_its_time_than_the_knee(steps: list[float]):
    points = [point(2**i, step) for i, step in enumerate(steps)]
    marked, _ = with_knees(points, "global_batch_size")
    ratio = [1 / (each.devices * (each.total_s or 0)) / (each.total_s or 0) for each in marked]
    best = next(i for i, each in enumerate(marked) if each.knee)
    assert max(ratio) == pytest.approx(ratio[best], rel=1e-12)


@given(STEPS)
def test_more_devices_than_the_knee_do_not_pay_and_fewer_lose(steps: list[float]):
    points = [point(2**i, step) for i, step in enumerate(steps)]
    knee = with_knees(points, "global_batch_size")[1][0]
    rate = {each.devices: each.samples_per_s or 0 for each in points}
    for devices in rate:
        faster, more = rate[devices] / rate[knee.devices], devices / knee.devices
        assert faster <= more**0.5 * (1 + 1e-9)
    if knee.next_speedup is not None:
        assert knee.next_speedup <= (knee.pays_from or 0) * (1 + 1e-9)


def test_doubling_pays_above_a_square_root():
    for factor, expected in ((1.40, 1), (1.43, 2)):
        assert knees(point(1, 1.0), point(2, 1 / factor)) == [(expected, False)]


def test_a_knee_names_what_comes_after_it():
    _, (knee,) = with_knees([point(2, 1.0), point(4, None), point(8, 0.8)], "global_batch_size")
    assert (knee.devices, knee.next_devices, knee.pays_from, knee.fewest) == (2, 8, 2.0, True)
    assert knee.next_speedup == pytest.approx(1.25)
    _, (last,) = with_knees([point(2, 1.0), point(4, 0.5)], "global_batch_size")
    assert (last.devices, last.next_devices, last.next_speedup, last.pays_from, last.fewest) == (
        4, None, None, None, False,
    )  # fmt: skip


def test_at_a_fixed_local_batch_the_samples_of_a_step_count():
    weak = [
        replace(point(n, step), batch_size=10, global_batch_size=10 * n) for n, step in ((1, 1.0), (2, 1.3), (4, 3.0))
    ]
    assert knees(*weak, fixed="batch_size") == [(2, False)]


def test_each_device_and_batch_has_a_knee_of_its_own():
    rows = (point(1, 1.0), point(2, 0.5))
    others = [replace(each, device="e") for each in rows]
    fuller = [replace(each, per_host=4) for each in rows]
    larger = [replace(each, global_batch_size=2000) for each in rows]
    assert len(knees(*rows, *others, *fuller, *larger)) == 4
    _, found = with_knees((*rows, *larger), "global_batch_size")
    assert [knee.size for knee in found] == [1000, 2000]


def test_one_plan_alone_is_no_knee():
    assert knees(point(1, 1.0), point(2, None)) == []


@pytest.mark.parametrize(
    ("rival", "proven"),
    [
        (point(2, 1.0, 0.8), True),
        (point(2, 1.0, 0.7), False),
        (point(2, 1.0), False),
        (point(2, None), True),
        (point(2, None, outcome="refused"), True),
        (point(2, None, outcome="not_found"), False),
    ],
)
def test_a_knee_is_proven_where_no_other_count_can_come_to_it(rival: Point, proven: bool):
    assert knees(point(1, 1.0, 0.1), rival, point(4, 1.0, 0.9)) == [(1, proven)]


def test_what_rows_of_sequence_tables_take_is_in_the_step():
    """It is the same under every plan of a number of devices, so no plan is shorter than the bound with it."""
    sequence = Table(
        name="s",
        num_embeddings=1000,
        embedding_dim=64,
        pooling="none",
        features=(Feature(name="f", pooling_factor=20),),
    )
    work = Workload(batch_size=512, optimizer="sgd", tables=(sequence,), index_dedup="on")
    found = sweep(work, devices=[2], device="h100:2", planner="size_greedy", cost_model="analytic")
    cost = plan(work, "h100:2", planner="size_greedy", cost_model="analytic").plan.cost
    assert cost.sequences_s > 0
    assert found.points[0].total_s == cost.step_s
    assert found.points[0].bound_s is not None
    assert cost.sequences_s < found.points[0].bound_s <= cost.step_s
