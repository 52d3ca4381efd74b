"""What-ifs: their words, and that faster parts never make a step longer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.synthetic_traces import write_capture

from recsmith.errors import UsageError
from recsmith.prediction.graph import Graph
from recsmith.prediction.overheads import extract_overheads, with_overheads, without_outliers
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.traces import load_capture
from recsmith.prediction.what_if import parse_what_ifs


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


WRONG = {
    "speed=2x": "nothing that is known",
    "kernel:gem=2x": "known of kernel are gemm",
    "overhead:T6=0": "known of overhead are T1",
    "link=0": "above 0",
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


def test_overheads_leave_outliers_out_and_replace_those_of_a_graph(graph: Graph):
    import numpy as np

    assert without_outliers(np.array([1.0, 1.1, 1.2, 1.0, 9.0])).max() == 1.2
    found = extract_overheads([graph], "made")
    known = found.by_key()
    assert known["T2", "aten::linear"] == pytest.approx(0.1e-3)
    assert known["T4", "c10d::allreduce_"] == pytest.approx(0.5e-3)
    assert known["T1", "start of step > aten::linear"] == known["T1", "aten::linear"] == pytest.approx(1e-3)
    assert predict_graph(with_overheads(graph, found)).step_s == pytest.approx(predict_graph(graph).step_s)
