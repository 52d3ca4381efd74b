"""What-ifs and other clusters: what they change, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dlrm_plans import DLRM, a_plan
from support.machines import a_machine
from support.synthetic_traces import write_capture

from recsmith.cli.app import app
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.plans import save_plan
from recsmith.prediction.graph import CollectiveRun, Graph, Kind
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.overheads import extract_overheads, without_outliers
from recsmith.prediction.predict import no_latency, predict_graph
from recsmith.prediction.traces import load_capture
from recsmith.prediction.what_if import on_cluster, parse_what_ifs


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return load_capture(write_capture(tmp_path_factory.mktemp("made") / "trace", [0.0, 1.0])).graph


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["kernel", "kernel:gemm", "comm", "comm:all_reduce", "overhead", "overhead:T1"]),
       st.floats(0, 3), st.floats(0, 3))  # fmt: skip
def test_more_time_of_a_part_never_shortens_the_step(graph: Graph, part: str, one: float, other: float):
    few, many = (
        predict_graph(graph, parse_what_ifs(f"{part}={factor:.6f}x")).step_s for factor in sorted([one, other])
    )
    assert few <= many + 1e-12


def test_a_faster_link_shortens_what_lies_beyond_latency(graph: Graph):
    (change,) = parse_what_ifs("link=4x")
    whole = predict_graph(graph, (change,)).step_s
    with_latency = predict_graph(graph, (change,), latency=lambda _: 2e-3).step_s
    assert predict_graph(graph).step_s - whole == pytest.approx(3e-3)
    assert predict_graph(graph).step_s - with_latency == pytest.approx(1.5e-3)


def test_fewer_bytes_shorten_what_lies_beyond_latency(graph: Graph):
    whole = predict_graph(graph, parse_what_ifs("bytes:all_reduce=0.25x"), latency=lambda _: 2e-3).step_s
    assert whole == predict_graph(graph, parse_what_ifs("link=4x"), latency=lambda _: 2e-3).step_s


@pytest.mark.parametrize("part", ["kernel:softmax", "comm:all_gather", "bytes:all_gather", "overhead:T5"])
def test_a_change_of_what_a_step_has_not_is_refused(graph: Graph, part: str):
    with pytest.raises(UsageError, match=rf"'{part}' changes nothing of this step, which has \w+"):
        predict_graph(graph, parse_what_ifs(f"{part}=0.25x"))


WRONG = {
    "speed=2x": "nothing that is known",
    "overhead:T6=0": "known of overhead are T1",
    "link=0": "at least 1e-06",
    "link=1e-320x": "at least 1e-06",
    "link=-1x": "no factor",
    "link=2": "no factor",
    "kernel=1e9x": "at most",
    "link=2x,link=3x": "twice",
    " , ": "empty",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_words_get_one_sentence(words: str):
    with pytest.raises(UsageError, match=WRONG[words]):
        parse_what_ifs(words)


def test_overheads_leave_outliers_out_and_are_means_of_operators(graph: Graph):
    import numpy as np

    assert without_outliers(np.array([1.0, 1.1, 1.2, 1.0, 9.0])).max() == 1.2
    found = extract_overheads([graph], "made")
    known = found.by_key()
    assert known["T2", "aten::linear"] == pytest.approx(0.1e-3)
    assert known["T4", "c10d::allreduce_"] == pytest.approx(0.5e-3)
    assert known["T1", "start of step > aten::linear"] == known["T1", "aten::linear"] == pytest.approx(1e-3)


PLAN = a_plan((0, 1, 0, 1, 0))


def step() -> Graph:
    return model_graph(DLRM, a_machine(), plan=PLAN, ranks=2, batch=64)


def faster(memory: float, links: float) -> Cluster:
    old = PLAN.cluster
    device = replace(old.device, hbm_bandwidth=old.device.hbm_bandwidth * memory)
    made = replace(old.links, intra_host_bandwidth=old.links.intra_host_bandwidth * links)
    return replace(old, device=device, links=made)


def seconds(graph: Graph, *, products: bool) -> float:
    kernels = [event for _, event in graph.kernels() if (event.term == "gemm") == products]
    return sum(event.seconds for event in kernels if event.kind == Kind.RUN)


def test_memory_and_links_go_by_their_figures_and_nothing_else_changes() -> None:
    old = step()
    new, said = on_cluster(old, PLAN.cluster, faster(2.0, 4.0), no_latency)
    assert seconds(new, products=False) == pytest.approx(seconds(old, products=False) / 2)
    assert seconds(new, products=True) == seconds(old, products=True) > 0
    for mine, before in zip(new.collectives, old.collectives, strict=True):
        assert mine.seconds == pytest.approx(before.seconds / 4)
    assert "memory 2 times as fast" in said
    assert "4 times" in said
    assert predict_graph(new).step_s < predict_graph(old).step_s


def test_the_same_cluster_changes_nothing_and_latency_stays() -> None:
    old = step()
    same, _ = on_cluster(old, PLAN.cluster, PLAN.cluster, no_latency)
    assert predict_graph(same).step_s == pytest.approx(predict_graph(old).step_s)

    def all_of_it(made: CollectiveRun) -> float:
        return made.seconds

    fixed, _ = on_cluster(old, PLAN.cluster, faster(1.0, 4.0), all_of_it)
    assert [each.seconds for each in fixed.collectives] == [each.seconds for each in old.collectives]


@pytest.mark.parametrize(("cluster", "said"), [("cpu:4", "2 ranks"), ("h100:2", "of one kind")])
def test_what_cannot_be_carried_over_gets_one_sentence(cluster: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        on_cluster(step(), PLAN.cluster, load_cluster(cluster), no_latency)


def test_the_command_asks_for_the_plan_and_says_what_it_did(tmp_path: Path) -> None:
    model, plan = (str(tmp_path / name) for name in ("dlrm.yaml", "plan.json"))
    Path(model).write_text("schema: recsmith/model/1\nkind: dlrm\n")
    save_plan(PLAN, plan)
    shown = CliRunner().invoke(app, ["predict", model, "--cluster", "cpu:2"])
    assert "add --plan" in str(shown.exception)
    shown = CliRunner().invoke(app, ["predict", model, "--plan", plan, "--cluster", "cpu:2"])
    assert shown.exit_code == 0, shown.exception
    assert "carried over to cpu" in " ".join(shown.output.split())
