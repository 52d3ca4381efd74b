"""Successive halving: the same winner on any number of cores, never worse than a start, and over when they are told."""

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload
from support.searched import lopsided

from recsmith.bounds import first_bound, lower_bound
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model, step_seconds
from recsmith.planners.annealing import successive_halving as module
from recsmith.planners.annealing.kernel import SLOWEST, is_compiled
from recsmith.planners.annealing.starts import Start, selected_starts, starts_of
from recsmith.planners.annealing.successive_halving import AnnealedPlan, Round, SuccessiveHalving, halving_of
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.problems import Footprint, Space, build_problem
from recsmith.workloads import load_workload
from recsmith.workloads.sample import sample_workload

pytestmark = pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS", (Round(4, (1.0, 3.0), 1), Round(2, (1.0,), 2)))
    monkeypatch.setattr(module, "LATER_ROUNDS", (Round(4, (1.0,), 1),))
    monkeypatch.setattr(module, "STEPS", 2_000)
    monkeypatch.setattr(module, "AT_ONCE", 500)


def begun(case: Case) -> list[Start]:
    devices, relaxation = DeviceState(case.evaluator), shared_relaxation(case.evaluator)
    return starts_of(devices, relaxation, first_bound(case.evaluator), ())


def halving(case: Case, seed: int = 0) -> SuccessiveHalving:
    made = halving_of(DeviceState(case.evaluator), shared_relaxation(case.evaluator), begun(case), seed)
    assert made is not None
    return made


def played(case: Case, turns: int = 1) -> list[Footprint]:
    heard: list[Footprint] = []
    made = halving(case)
    for _ in range(turns):
        made.run(lambda footprint: bool(heard.append(footprint)), lambda: True)
    return heard


def all_types() -> Case:
    tables = [table(f"t{i}", 5_000 * (i + 1), 4 * (1 + i % 9), 1.0 + 3 * (i % 5)) for i in range(12)]
    return Case(workload(*tables, batch_size=512), cluster(2, hosts=2), Space(), cost_model="analytic")


def test_starts_keep_to_their_groups_and_come_best_first() -> None:
    case = all_types()
    found = begun(case)
    assert len(found) > 4
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    assert len({each.groups.tobytes() for each in found}) == len(found)
    dominated = groups_dominated_by_type(case.evaluator)
    for each in found:
        used = case.evaluator.group[case.problem.options.mode[each.draft.option]]
        assert each.groups[used].all()
        assert not (each.groups & dominated).any()
        assert each.seconds == pytest.approx(step_seconds(case.evaluator, each.draft.footprint(case.problem)))


@pytest.mark.parametrize("seed", range(4))
def test_more_starts_never_end_a_round_with_a_longer_step(seed: int) -> None:
    case = all_types()
    devices, relaxation, starts = DeviceState(case.evaluator), shared_relaxation(case.evaluator), begun(case)
    reached: list[float] = []
    for number in (1, 2, 3, 4):
        made = halving_of(devices, relaxation, starts[:number], seed)
        assert made is not None
        assert len(made.plans) == number
        made.run(lambda _: True, lambda: True)
        reached.append(made.plans[0].seconds)
    assert reached == sorted(reached, reverse=True)


def test_a_round_is_never_worse_than_the_one_before_or_the_best_start() -> None:
    case = all_types()
    totals = [step_seconds(case.evaluator, each) for each in played(case, turns=2)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] <= min(each.seconds for each in begun(case)) * (1 + 1e-9)
    assert totals[-1] < totals[0] or totals[0] == pytest.approx(lower_bound(case.evaluator).bound.value_s, rel=0.01)


def test_the_number_of_cores_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    case = all_types()
    plans: list[list[bytes]] = []
    for cores in (1, 5):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        plans.append([np.stack([each.mode, each.width, each.target]).tobytes() for each in played(case)])
    assert plans[0] == plans[1]


def test_it_is_over_when_it_is_told() -> None:
    made, heard = halving(lopsided()), []
    made.run(lambda footprint: bool(heard.append(footprint)), lambda: False)
    assert len(heard) == 1
    made.run(lambda footprint: bool(heard.append(footprint)) or True, lambda: True)
    assert len(heard) == 2


def test_an_interrupt_ends_all_threads_and_goes_on() -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        halving(lopsided()).run(lambda footprint: False, interrupt)


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_a_cost_model_that_compiled_code_does_not_know_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build_problem(sample_workload(8, seed=3), load_cluster("h100:4"))
    evaluator = cost_model("neural:simulated-h100").compile(problem)
    devices, relaxation = DeviceState(evaluator), shared_relaxation(evaluator)
    found = starts_of(devices, relaxation, first_bound(evaluator), ())
    assert halving_of(devices, relaxation, found, 0) is not None
    monkeypatch.setattr(DeviceState, "compiled_loads", None)
    assert halving_of(DeviceState(evaluator), relaxation, found, 0) is None


def test_the_more_pieces_the_colder_and_the_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    case = all_types()
    few, pieces = halving(case), len(begun(case)[0].draft.piece)
    monkeypatch.setattr(module, "SOME_PIECES", pieces - 1)
    some = halving(case)
    monkeypatch.setattr(module, "MANY_PIECES", pieces - 1)
    many = halving(case)
    assert [made.rounds for made in (few, some, many)] == [module.ROUNDS, module.SOME_ROUNDS, module.LONG_ROUNDS]
    assert [made.unasked for made in (few, some, many)] == [2, 1, 2]
    assert some.heat == module.SOME_HEAT / pieces


@pytest.mark.parametrize(("pieces", "devices", "crowded"), [(0, 1, True), (0, 99, False), (999, 1, False)])
def test_changes_begin_where_it_is_slow_if_pieces_and_devices_are_many(
    monkeypatch: pytest.MonkeyPatch, pieces: int, devices: int, crowded: bool
) -> None:
    monkeypatch.setattr(module, "MANY_PIECES", 0)
    monkeypatch.setattr(module, "FAR_PIECES", pieces)
    monkeypatch.setattr(module, "CROWDED", devices)
    made = halving(all_types())
    assert made.flat.slowest == (module.CROWDED_SLOWEST if crowded else SLOWEST)
    assert (made.steps < module.STEPS) == crowded


@pytest.mark.parametrize(("most_pieces", "bound_s", "rounds"), [(600, 0.0, 3), (600, 1e6, 4), (1, 0.0, 4)])
def test_plans_far_from_the_bound_have_one_longer_round(
    monkeypatch: pytest.MonkeyPatch, most_pieces: int, bound_s: float, rounds: int
) -> None:
    case, heard = all_types(), list[Footprint]()
    short = [each._replace(times=1) for each in (*module.LONG_ROUNDS, module.FAR_ROUND)]
    monkeypatch.setattr(module, "LONG_ROUNDS", tuple(short[:-1]))
    monkeypatch.setattr(module, "FAR_ROUND", short[-1])
    monkeypatch.setattr(module, "MANY_PIECES", 1)
    monkeypatch.setattr(module, "FAR_PIECES", most_pieces)
    devices, relaxation = DeviceState(case.evaluator), shared_relaxation(case.evaluator)
    made = halving_of(devices, relaxation, begun(case), 0, bound_s=bound_s)
    assert made is not None
    made.run(lambda footprint: bool(heard.append(footprint)), lambda: True)
    assert len(heard) == rounds


def test_few_sets_of_groups_have_a_second_start_of_other_options() -> None:
    case = lopsided()
    devices, relaxation = DeviceState(case.evaluator), shared_relaxation(case.evaluator)
    first, beyond = case.problem.options.start[:-1], case.problem.options.start[1:]
    others = [np.minimum(first + more, beyond - 1) for more in (0, 1, 1, 2)]
    drafts = [(1.0 + number, Assignment.of(case.problem, option)) for number, option in enumerate(others)]
    found = starts_of(devices, relaxation, first_bound(case.evaluator), drafts)
    assert [start.seconds for start in found] == [begun(case)[0].seconds, 2.0]


def test_where_groups_cost_more_than_their_pieces_the_set_whose_tables_cost_least_is_among_the_first() -> None:
    evaluator = cost_model("best").compile(build_problem(load_workload("dlrm-v2"), load_cluster("h100:8")))
    devices, known = DeviceState(evaluator), first_bound(evaluator)
    relaxation = shared_relaxation(evaluator, known.linear)
    found = starts_of(devices, relaxation, known, ())
    promised = known.promising[0].groups
    places = [place for place, start in enumerate(found) if (start.groups == promised).all()]
    assert places
    assert places[0] < 6
    assert found[places[0]].seconds > found[0].seconds * 1.1, "by its first plan's seconds it would come last"


def test_starts_where_the_bound_is_lowest_keep_tables_to_its_groups() -> None:
    case = all_types()
    evaluator = case.evaluator
    devices, known = DeviceState(evaluator), first_bound(evaluator)
    relaxation = shared_relaxation(evaluator, known.linear)
    group, tables = relaxation.option_group, len(case.problem.tables)
    mixed = np.array([group[first + (table % 2) * (beyond - first - 1)] for table, (first, beyond) in enumerate(
        zip(case.problem.options.start[:-1], case.problem.options.start[1:], strict=True))])  # fmt: skip
    known = replace(known, selections=(group[relaxation.choose().option], mixed))
    found = selected_starts(devices, relaxation, known, 2 * (known.bound.value_s or 0.0))
    assert found
    assert [start.seconds for start in found] == sorted(start.seconds for start in found)
    selected = [selection.tolist() for selection in known.selections]
    for start in found:
        assert relaxation.option_group[start.draft.option].tolist() in selected
    made = halving_of(devices, relaxation, found, 0)
    assert made is not None
    made.run(lambda _: False, lambda: True)
    held = made.plans[0].options.flat.footprint(made.plans[0].plan)
    kept = np.zeros(tables, dtype=np.int64)
    kept[case.problem.modes.table[held.mode]] = evaluator.group[held.mode]
    assert kept.tolist() in selected, "annealing keeps them there, too"


def test_a_search_goes_on_from_the_shorter_plan_of_another() -> None:
    short, long = halving(all_types()), halving(all_types())
    long.plans = long.plans[-1:]
    short.run(lambda _: False, lambda: True)
    assert short.plans[0].seconds < long.plans[0].seconds
    best = short.plans[0]
    short.take(long)
    assert short.plans[0] is best
    long.take(short)
    assert long.plans[0] is best
    assert len(long.plans) == 2


@pytest.mark.parametrize("earlier", [0, 1])
def test_the_long_rounds_go_to_the_shorter_plan_of_two_searches(earlier: int) -> None:
    found, rival, heard = halving(all_types()), halving(all_types(), seed=1), list[Footprint]()
    rival.run(lambda _: False, lambda: True)
    alone = halving(all_types())
    for each in (found, alone):
        each.plans, each.steps, each.rounds = each.plans[-1:], 1, (*module.ROUNDS, *2 * [Round(1, (1.0,), 1)])
    alone.run(lambda footprint: bool(heard.append(footprint)), lambda: True)
    assert alone.plans[0].seconds > rival.plans[0].seconds, "the worst start, hardly changed"
    heard.clear()

    def joining() -> Iterator[list[AnnealedPlan]]:
        assert len(heard) == module.FIRST_ROUNDS, "asked for when the round begins"
        yield from [[]] * earlier
        yield rival.plans[:1]

    found.run(lambda footprint: bool(heard.append(footprint)), lambda: True, joining())
    assert found.plans[0].seconds <= rival.plans[0].seconds * (1 + module.SAME)
    assert len(heard) == len(found.rounds)


def test_after_a_turn_that_found_nothing_after_its_first_round_none_is_worth_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = (Round(1, (1.0,), 1), Round(1, (1.0,), 0), Round(1, (1.0,), 0))  # the later ones change nothing
    for later, worth in ((rounds[1:], 1), ((rounds[1], Round(1, (0.01,), 4)), 2)):
        made = halving(all_types())
        made.rounds, made.plans, made.steps = (rounds[0], *later), made.plans[-1:], 100
        made.run(lambda _: False, lambda: True)
        assert made.unasked == worth
