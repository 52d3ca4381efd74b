"""Drafts: the best few are kept, each is priced once, and greedy planners come where nothing else found room."""

from collections import Counter
from dataclasses import replace
from itertools import repeat

import pytest
from support.cases import BOTH, LOOSE, Case, medium_case, seeded
from support.searched import heap, lopsided

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import Choice, shared_relaxation
from recsmith.costs import step_seconds
from recsmith.errors import NoPlanFound
from recsmith.planners import protocol
from recsmith.planners.auto import drafts as module
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.auto.improvement import StoppingRule
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.neuroshard import NeuroShard
from recsmith.planners.protocol import Search
from recsmith.planners.search.device_state import Assignment, DeviceState


def drafts(case: Case, size: int = 10) -> Drafts:
    search, devices = Search(case.evaluator), DeviceState(case.evaluator)
    relaxation = shared_relaxation(case.evaluator, first_bound(case.evaluator).linear)
    return Drafts(search, devices, relaxation, StoppingRule(search, 0.0, size), finished=[])


def test_the_best_are_kept_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STARTS", 2)
    case, made = lopsided(), drafts(lopsided())
    for moved in (0, 3, 1):  # so many tables on the second device
        draft = heap(case)
        draft.target[:moved] = 1
        made.keep(draft)
    made.keep(None)
    totals = [seconds for seconds, _, _ in made.starts]
    assert made.search.iterations == 4
    assert len(totals) == 2
    assert totals == sorted(totals)
    assert made.search.total_s == totals[0]
    assert (made.starts[0][2].target == 1).sum() == 3


def test_each_draft_is_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """NeuroShard prices the plans of its own levels; no draft is priced again."""
    priced: list[bytes] = []

    def counted(evaluator, footprint) -> float:
        priced.append(footprint.mode.tobytes() + footprint.width.tobytes() + footprint.target.tobytes())
        return step_seconds(evaluator, footprint)

    monkeypatch.setattr(protocol, "step_seconds", counted)
    monkeypatch.setattr(module, "is_compiled", lambda: False)
    made = drafts(lopsided())
    assert made.work()
    assert made.finished == ["candidates", "cost_greedy", "ldm", "neuroshard"]
    assert len(priced) <= made.search.iterations + NeuroShard().depth + 1


@pytest.mark.parametrize("model", BOTH)
def test_plans_of_other_planners_cost_the_same_as_drafts(model: str) -> None:
    """A borrowed plan's seconds are believed: sorting its pieces must not change a bit of them."""
    seen = Counter[str]()
    for seed in range(10):
        case = medium_case(seeded(seed), LOOSE, (model,))
        for planner in (*GREEDIES, NeuroShard()):
            try:
                found = planner.plan(case.problem, case.evaluator)
            except NoPlanFound:
                continue
            draft = Assignment.from_footprint(case.problem, found.footprint)
            if draft is not None:
                assert step_seconds(case.evaluator, draft.footprint(case.problem)) == found.total_s
                seen[planner.name] += 1
    assert len(seen) == len(GREEDIES) + 1


def test_neuroshard_drafts_only_where_no_annealing_goes_on_from_other_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[bool, bool]]()
    for compiled in (False, True):
        monkeypatch.setattr(module, "is_compiled", lambda answer=compiled: answer)
        for found in (False, True):
            made = drafts(lopsided())
            with monkeypatch.context() as patch:
                for name in () if found else ("place_candidate", "place_in_fewest_pieces", "differenced"):
                    patch.setattr(module, name, lambda *_: None)
                assert made.work()
            asked += [(compiled, found)] if "neuroshard" in made.finished else []
    assert asked == [(False, False), (False, True), (True, False)]


def test_greedy_planners_come_where_nothing_found_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("place_candidate", "place_in_fewest_pieces", "differenced"):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(Drafts, "_neuroshard", lambda _: True)
    made = drafts(lopsided())
    assert made.work()
    assert made.finished[-1] == "random"
    assert made.search.best is not None


def test_light_options_are_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("place_candidate", "place_in_fewest_pieces", "differenced"):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(Drafts, "_borrow", lambda *_: None)
    made = drafts(lopsided())
    assert made.work()
    assert made.finished[-1] == "light_options"
    assert len(made.starts) == 1


def test_large_problems_get_other_planners_only_without_candidates() -> None:
    made = drafts(lopsided(), size=module.QUICK + 1)
    assert made.work()
    assert made.finished == ["candidates", "cost_greedy"]
    assert made.search.iterations <= module.MOST_DRAFTS


def test_large_problems_get_few_drafts_only_where_compiled_annealing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    case, placed = medium_case(seeded(0), LOOSE, ("analytic",)), list[str]()
    draft = Assignment.of(case.problem, shared_relaxation(case.evaluator).choose().option)
    monkeypatch.setattr(Drafts, "_near_first", lambda *_: repeat(draft, 20))
    monkeypatch.setattr(Drafts, "keep", lambda made, *_: made.starts.append((0.0, 0, draft)))
    for compiled, linear in ((False, True), (True, False), (True, True)):
        monkeypatch.setattr(module, "is_compiled", lambda answer=compiled: answer)
        monkeypatch.setattr(module, "place_candidate", lambda *_, answer=f"{compiled} {linear}": placed.append(answer))
        with monkeypatch.context() as patch:
            if not linear:
                patch.setattr(DeviceState, "linear_pieces", None)
            assert drafts(case, size=module.QUICK + 1).work()
    assert Counter(placed) == {"False True": 20, "True False": 20, "True True": module.LARGE_DRAFTS}


def test_candidates_far_from_the_bound_come_where_no_other_found_room(monkeypatch: pytest.MonkeyPatch) -> None:
    case = lopsided()
    near = shared_relaxation(case.evaluator).choose()
    bound_s, asked = float(near.seconds.sum()) / len(DeviceState(case.evaluator).free), list[Choice]()
    far = replace(near, seconds=near.seconds * module.FAR * 2)
    monkeypatch.setattr(module, "candidates", lambda *_: iter((far, near, far)))
    for room, expected in ((True, [near]), (False, [near, far, far])):
        made = drafts(case)
        made.stopping.bound_s = bound_s
        monkeypatch.setattr(
            module, "place_candidate", lambda *each, room=room: (asked.append(each[2]), heap(case) if room else None)[1]
        )
        assert made._candidates()
        assert [id(each) for each in asked] == [id(each) for each in expected]
        asked.clear()
