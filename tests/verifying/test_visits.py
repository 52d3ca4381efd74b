"""Visits of plans: which rank is measured when, what is measured once for several, and how a run ends."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.measured import Stub, answer, group

from recsmith.errors import RecSmithError, UsageError
from recsmith.hardware import Case, Measurement
from recsmith.verifying import visits as room
from recsmith.verifying.visits import VisitProgress, measure_kernels, measure_load, open_hardware, turns

A, B, C, D = (group((100, 8, float(pooling), 0.0)) for pooling in (1, 2, 3, 4))
NUMBERS = {case.workload: name for case, name in zip((A, B, C, D), "ABCD", strict=True)}


class Noted(Stub):
    """Says how large a case's pooling factor is, and notes who was asked."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(self.tell)
        self.order: list[str] = []
        self.fields = fields

    def tell(self, case: Case, visit: int) -> Measurement:
        self.order.append(NUMBERS[case.workload] + str(visit))
        return answer(case, seconds=case.tables[0].features[0].pooling_factor + visit, **self.fields)


def test_a_visit_measures_every_distinct_load_once():
    hardware = Noted()
    plans = [((A,), (B,), (A,)), ((B,), (C,), ())]
    found = measure_kernels(hardware, plans, visits=2)
    assert hardware.order == ["A0", "B0", "C0", "B1", "A1", "C1"]
    assert found.kernels[0][:, :, 0].tolist() == [[1, 2, 1], [2, 3, 2]]
    assert found.kernels[1][:, :, 1].tolist() == [[4, 6, 0], [6, 8, 0]]
    assert (found.visits, found.complete) == (2, True)


def test_groups_of_a_rank_are_measured_together():
    assert measure_kernels(Noted(), [((A, B),)], visits=1).kernels[0].tolist() == [[[3, 6]]]


def test_another_plan_comes_first_in_each_visit():
    plans: Sequence[Any] = [((A,), (D,)), ((B,),), ((C,), (A,))]
    assert [NUMBERS[next(turns(plans, visit))[0].workload] for visit in range(4)] == ["A", "B", "C", "A"]
    assert sorted(NUMBERS[load[0].workload] for load in turns(plans, 1)) == ["A", "B", "C", "D"]


def test_other_loads_are_measured_once_and_spread_over_the_visits():
    hardware = Noted()
    found = measure_kernels(hardware, [((A,),)], visits=2, others=[(B,), (C,), (D,)])
    assert hardware.order == ["A0", "B0", "C0", "A1", "D1"]
    assert [each[0] for each in found.others] == [2, 3, 5]


def test_other_loads_do_not_wait_for_the_last_of_many_visits():
    hardware = Noted()
    measure_kernels(hardware, [((A,),)], visits=20, others=[(B,), (C,), (D,)] * 3)
    assert [name for name in hardware.order if name[0] != "A"][-1] == "D6"


def test_progress_ends_at_its_total():
    said: list[VisitProgress] = []
    measure_kernels(Noted(), [((A,), (A,), ())], visits=3, others=[(B,)], on_progress=said.append)
    assert [(each.done, each.total, each.visit) for each in said] == [(1, 4, 1), (2, 4, 1), (3, 4, 2), (4, 4, 3)]


@pytest.mark.parametrize(("after", "visits"), [(6, 3), (9, 4)])
def test_an_interrupted_run_reports_whole_visits(after: int, visits: int):
    hardware = interrupted(after)
    found = measure_kernels(hardware, [((A,),), ((B,),)], visits=7)
    assert (found.visits, found.complete) == (visits, False)
    assert found.kernels[0].shape == (visits, 1, 2)


def test_a_run_interrupted_before_three_visits_has_nothing_to_report():
    with pytest.raises(KeyboardInterrupt):
        measure_kernels(interrupted(5), [((A,),), ((B,),)], visits=7)


def interrupted(after: int) -> Stub:
    def tell(case: Case, visit: int) -> Measurement:
        if len(hardware.asked) > after:
            raise KeyboardInterrupt
        return answer(case)

    hardware = Stub(tell)
    return hardware


def test_what_fails_ends_the_run():
    failing = Noted(status="out_of_memory", forward_s=None, message="no room")
    failing.measure_groups = lambda cases, visit=0, least=4: failing.measure(cases[0])
    with pytest.raises(RecSmithError, match="could not be measured \\(out_of_memory\\): no room"):
        measure_kernels(failing, [((A,),)])


def test_one_load_fails_in_the_words_of_who_measures():
    failing = Noted(status="failed", forward_s=None, message="odd")
    failing.measure_groups = lambda cases, visit=0, least=4: failing.measure(cases[0])
    with pytest.raises(RecSmithError, match=r"a task could not be measured \(failed\): odd"):
        measure_load(failing, (A,), 0, what="a task")
    assert measure_load(Noted(), (A, B), 1) == ((5.0, 10.0), 1e-3)


def test_nothing_to_measure_is_refused():
    with pytest.raises(UsageError, match="0 visits of 1 plans"):
        measure_kernels(Stub(), [((A,),)], visits=0)


def test_what_does_not_fit_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "free_bytes", lambda: 2**20)
    with pytest.raises(UsageError, match=r"the largest rank needs .* has 1 MiB available"):
        open_hardware("cpu", [(A,)])


@pytest.mark.usefixtures("fbgemm")
def test_the_cpu_measures_ranks_of_two_groups():
    loads = [(A, B), (C,), (group((1000, 16, 5.0, 1.0), data_type="fp16"), group((50, 4, 1.0, 0.0)))]
    found = measure_kernels(open_hardware("cpu", loads), [tuple(loads)], visits=2)
    assert found.kernels[0].shape == (2, 3, 2)
    assert (found.kernels[0] > 0).all()
    assert (found.probe_s > 0).all()


def test_simulated_ranks_take_what_their_groups_take():
    hardware = open_hardware("simulated:h100", [(A, B)])
    both = hardware.measure_groups((A, B))
    alone = [hardware.measure(case) for case in (A, B)]
    assert both.forward_s == pytest.approx(sum(each.forward_s or 0 for each in alone))
    assert both.backward_s == pytest.approx(sum(each.backward_s or 0 for each in alone))
    assert both.unique_rows == (*alone[0].unique_rows, *alone[1].unique_rows)
