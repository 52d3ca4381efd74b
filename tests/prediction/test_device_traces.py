"""Traces of GPU jobs, written by hand in Kineto's format: launches, streams, NCCL, backward's thread, waits."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_traces import write_device_capture

from recsmith.errors import CorruptFile
from recsmith.prediction.graph import Kind
from recsmith.prediction.predict import account, critical_path, predict_graph, terms_of
from recsmith.prediction.traces import load_capture
from recsmith.prediction.walk import walk
from recsmith.prediction.what_if import parse_what_ifs

MS = 1e-3


def test_a_gpu_step_is_walked_as_it_ran(tmp_path: Path):
    captured = load_capture(write_device_capture(tmp_path / "trace", [6.0, 7.5]))
    tape = captured.graph.ranks[0]
    launches = [event for event in tape if event.kind == Kind.LAUNCH]
    assert [(event.term, event.stream) for event in launches] == [("gemm", "7"), ("gemm", "7"), ("elementwise", "7")]
    assert [event.work_s for event in launches] == pytest.approx([3 * MS, 2 * MS, 1 * MS])
    kernel = launches[0].kernel
    assert kernel is not None
    assert kernel[:2] == ("gemm", (1.0, 64.0, 32.0, 16.0, 0.0, 0.0))
    assert [event.kind for event in tape if event.kind in (Kind.STREAM_AWAIT, Kind.SYNC)] == [
        Kind.STREAM_AWAIT, *[Kind.SYNC] * 2,
    ]  # fmt: skip
    (meeting,) = captured.graph.collectives
    assert meeting.seconds == pytest.approx(6 * MS)  # of the rank that came last
    done = walk(captured.graph)
    kernels_end = (0.2 + 0.1 + 3 + 0.001 + 2) * MS
    assert done.meetings[0].begin == pytest.approx(kernels_end, abs=2e-6)
    assert done.step_s == pytest.approx(kernels_end + (6 + 1) * MS, abs=5e-6)
    terms = terms_of(critical_path(done))
    assert sum(terms.values()) == pytest.approx(done.step_s)
    assert terms["gemm"] == pytest.approx(5 * MS)
    assert terms["T4"] == pytest.approx(0.1 * MS)  # the first launch; the others are hidden
    assert terms["all_reduce"] == pytest.approx(6 * MS)
    first = account(done)[0]
    assert first.active_s == pytest.approx(6 * MS)
    assert first.exposed_comm_s == pytest.approx(6 * MS)


def test_what_ifs_of_a_gpu_step_change_what_waits_for_it(tmp_path: Path):
    graph = load_capture(write_device_capture(tmp_path / "trace", [6.0])).graph
    whole = predict_graph(graph).step_s
    faster = predict_graph(graph, parse_what_ifs("kernel:gemm=0.5x")).step_s
    assert faster == pytest.approx(whole - 2.5 * MS, abs=5e-6)
    linked = predict_graph(graph, parse_what_ifs("link=2x")).step_s
    assert linked == pytest.approx(whole - 3 * MS, abs=5e-6)
    assert predict_graph(graph, parse_what_ifs("overhead:T1=0")).step_s == pytest.approx(whole, abs=2e-5)


def _edit(folder: Path, change: Any) -> None:
    file = folder / "rank-0.trace.json.gz"
    raw = json.loads(gzip.decompress(file.read_bytes()))
    raw["traceEvents"] = [each for each in map(change, raw["traceEvents"]) if each is not None]
    file.write_bytes(gzip.compress(json.dumps(raw).encode()))


def _without_numbers(event: dict[str, Any]) -> dict[str, Any]:
    if event["cat"] == "kernel":
        event["args"].pop("correlation")
    return event


def _without_threads(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "tid" or event["cat"] != "cuda_runtime"}


BROKEN = {
    "no correlation": (_without_numbers, "an event of the device has no 'correlation'"),
    "no thread": (_without_threads, "an event of the device has no 'tid'"),
    "no NCCL": (lambda event: None if event["name"].startswith("nccl") else event, "without a kernel of NCCL"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_device_traces_get_one_sentence(tmp_path: Path, case: str):
    folder = write_device_capture(tmp_path / "trace", [6.0, 6.0])
    change, said = BROKEN[case]
    _edit(folder, change)
    with pytest.raises(CorruptFile, match=said) as error:
        load_capture(folder)
    assert "\n" not in str(error.value)


def test_kernels_that_no_operator_explains_are_still_walked(tmp_path: Path):
    folder = write_device_capture(tmp_path / "trace", [6.0])
    _edit(folder, lambda event: event | {"name": "mine::fused"} if event["name"] == "aten::addmm" else event)
    captured = load_capture(folder)
    assert any("kind" in note for note in captured.notes)
    assert walk(captured.graph).step_s == pytest.approx((0.3 + 3 + 0.001 + 2 + 6 + 1) * MS, abs=5e-6)


def test_a_launch_that_takes_no_time_has_the_work_of_its_operator(tmp_path: Path):
    def at_once(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "dur": 0.0} if event["cat"] == "kernel" and "nccl" not in event["name"] else event

    folder = write_device_capture(tmp_path / "trace", [6.0])
    _edit(folder, at_once)
    launches = [event for event in load_capture(folder).graph.ranks[0] if event.kind == Kind.LAUNCH]
    assert [event.kernel and event.kernel.share for event in launches] == [1.0, 1.0, 1.0]
