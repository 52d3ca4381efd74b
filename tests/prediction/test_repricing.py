"""A captured step under another plan: what the templates say of that plan is what repricing must find."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dlrm_plans import DLRM, ROWS, a_plan
from support.machines import a_machine
from support.synthetic_traces import write_capture

from recsmith.cli.app import app
from recsmith.errors import UsageError
from recsmith.plans import Plan, save_plan
from recsmith.prediction.graph import Graph, KernelShape
from recsmith.prediction.models import Model
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.repricing import grown, held_tables, reprice


def template(plan: Plan, batch: int) -> Graph:
    return model_graph(DLRM, a_machine(), plan=plan, ranks=2, batch=batch)


homes = st.tuples(*[st.integers(0, 1)] * len(ROWS)).filter(lambda each: 0 < sum(each) < len(ROWS))


@settings(max_examples=25, deadline=None)
@given(homes, homes, st.sampled_from([32, 64, 256]))
def test_a_template_under_another_plan_is_that_plans_template(one: tuple[int, ...], other: tuple[int, ...], batch: int):
    found = reprice(template(a_plan(one), 64), a_machine(), plan=a_plan(other), batch=batch)
    wanted = template(a_plan(other), batch)
    for mine, real in zip(found.collectives, wanted.collectives, strict=True):
        assert mine.bytes == pytest.approx(real.bytes, rel=1e-6)
        assert mine.seconds == pytest.approx(real.seconds, rel=1e-6)
    for mine, real in zip(found.ranks, wanted.ranks, strict=True):
        for one_event, other_event in zip(mine, real, strict=True):
            if one_event.term.startswith("embedding"):
                assert one_event.seconds == pytest.approx(other_event.seconds, rel=1e-6)
    assert predict_graph(found).step_s == pytest.approx(predict_graph(wanted).step_s, rel=0.02)


def test_a_plan_without_a_change_changes_nothing_and_a_rank_may_lose_all_tables():
    graph = template(a_plan((0, 1, 0, 1, 0)), 64)
    same = reprice(graph, a_machine(), plan=a_plan((0, 1, 0, 1, 0)))
    assert predict_graph(same).step_s == pytest.approx(predict_graph(graph).step_s, rel=1e-9)
    bare = reprice(graph, a_machine(), plan=a_plan((0, 0, 0, 0, 0)))
    assert [sum(event.seconds for event in tape if event.term == "embedding_backward") > 0 for tape in bare.ranks] == [
        True,
        False,
    ]
    held, batch = held_tables(graph)
    assert batch == 64
    assert [each.tables for each in held] == [3, 2]


def test_times_of_a_slower_machine_stay_slower():
    slow = model_graph(DLRM, a_machine(3.0), plan=a_plan((0, 1, 0, 1, 0)), ranks=2, batch=64)
    found = reprice(slow, a_machine(), plan=a_plan((1, 1, 0, 1, 0)))
    wanted = model_graph(DLRM, a_machine(3.0), plan=a_plan((1, 1, 0, 1, 0)), ranks=2, batch=64)
    assert predict_graph(found).step_s == pytest.approx(predict_graph(wanted).step_s, rel=0.02)


@pytest.mark.parametrize(
    ("shape", "larger"),
    [((1, 64, 8, 4, 0, 1), (1, 128, 8, 4, 0, 1)), ((1, 8, 64, 4, 1, 0), (1, 8, 128, 4, 1, 0)),
     ((64, 5, 8, 5, 0, 1), (128, 5, 8, 5, 0, 1))],
)  # fmt: skip
def test_products_grow_where_their_samples_are(shape: tuple[float, ...], larger: tuple[float, ...]):
    assert grown(KernelShape("gemm", shape), 2.0).shape == larger


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no lookup": (lambda: reprice(model_graph(Model(kind="mlp"), a_machine(), plan=None, ranks=2, batch=8),
                                  a_machine(), batch=4), "0 lookups"),
    "other ranks": (lambda: reprice(template(a_plan((0, 0, 1, 0, 0)), 64), a_machine(),
                                              plan=a_plan((0, 0, 1, 0, 2))), "of 3 ranks, and the trace of 2"),
    "other tables": (lambda: reprice(template(a_plan((0, 1, 0, 1, 0)), 64), a_machine(),
                                     plan=a_plan((0, 1), ROWS[:2])), "elements"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_gets_one_sentence(case: str):
    call, said = REFUSED[case]
    with pytest.raises(UsageError, match=said):
        call()


def test_the_command_prices_a_capture_only_where_it_has_lookups(tmp_path: Path):
    folder = str(write_capture(tmp_path / "trace", [0.0, 1.0]))
    save_plan(a_plan((0, 1, 0, 1, 0)), str(tmp_path / "plan.json"))
    for words, said in (
        (["--plan", str(tmp_path / "plan.json")], "rank 0 of the trace has 0 lookups"),
        (["--batch", "8"], "0 lookups"),
        (["--machine", "cpu"], "beside --plan or --batch"),
        (["--ranks", "2"], "--ranks is of a described model"),
    ):
        shown = CliRunner().invoke(app, ["predict", folder, *words])
        assert said in str(shown.exception)
