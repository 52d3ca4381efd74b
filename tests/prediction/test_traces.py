"""Captures that are written by hand: their graphs, and what is said of captures that cannot be read."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.synthetic_traces import write_capture, write_device_capture

from recsmith.cli.app import app
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.prediction.graph import Kind
from recsmith.prediction.predict import critical_path, predict_graph, terms_of
from recsmith.prediction.predictions import predict_capture
from recsmith.prediction.step_objective import step_predictor
from recsmith.prediction.traces import is_capture, load_capture
from recsmith.prediction.walk import walk


def test_a_step_is_cut_into_overheads_kernels_and_waits(tmp_path: Path):
    captured = load_capture(write_capture(tmp_path / "trace", [0.0, 1.0]))
    graph = captured.graph
    assert [(event.kind, event.term, round(event.seconds * 1e3, 6)) for event in graph.ranks[0]] == [
        (Kind.HOST, "T1", 1.0), (Kind.HOST, "T2", 0.1), (Kind.RUN, "gemm", 2.0), (Kind.HOST, "T3", 0.4),
        (Kind.HOST, "T1", 0.5), (Kind.ISSUE, "T4", 0.5), (Kind.AWAIT, "wait", 0.0), (Kind.HOST, "T1", 0.2),
        (Kind.RUN, "elementwise", 1.0), (Kind.HOST, "T1", 0.3),
    ]  # fmt: skip
    kernel = graph.ranks[0][2].kernel
    assert kernel is not None
    assert kernel[:2] == ("gemm", (1.0, 64.0, 32.0, 16.0, 0.0, 0.0))
    (meeting,) = graph.collectives
    assert (meeting.name, meeting.bytes) == ("all_reduce", 1024.0)
    assert meeting.seconds == pytest.approx(4e-3)  # of the rank that came last
    assert captured.notes == ()
    done = walk(graph)
    assert done.step_s == pytest.approx((4.5 + 4.0 + 1.5) * 1e-3)
    assert sum(terms_of(critical_path(done)).values()) == pytest.approx(done.step_s)


def test_unknown_operators_are_named_and_counted(tmp_path: Path):
    folder = write_capture(tmp_path / "trace", [0.0])
    _edit(folder, lambda text: text.replace("aten::addmm", "aten::brand_new"))
    (note,) = load_capture(folder).notes
    assert "1 kind of operators not known" in note
    assert "aten::brand_new (1)" in note


@pytest.mark.parametrize(("measured_s", "said"), [(20e-3, True), (10.5e-3, False)])
def test_a_host_thread_that_did_not_have_its_core_is_told(tmp_path: Path, measured_s: float, said: bool):
    folder = write_capture(tmp_path / "trace", [0.0, 1.0])  # of 10 ms, 6 of which rank 0 works
    file = folder / "rank-0.about.json"
    changes = {"plain_step_s": measured_s, "plain_host_s": 6e-3}
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    ((_, found),) = predict_capture(folder)
    told = "rank 0 worked for 6 ms and waited for ranks for 4 ms; in the other" in " ".join(found.notes)
    assert told == said


def _edit(folder: Path, change) -> None:
    file = folder / "rank-0.trace.json.gz"
    file.write_bytes(gzip.compress(change(gzip.decompress(file.read_bytes()).decode()).encode()))


def _cut(folder: Path) -> None:
    file = folder / "rank-0.trace.json.gz"
    file.write_bytes(file.read_bytes()[:-40])


def _without(name: str):
    return lambda folder: (folder / name).unlink()


def _graph(folder: Path, **changes) -> None:
    file = folder / "rank-1.graph.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _times_1000(found: re.Match[str]) -> str:
    return f'"{found[1]}": {float(found[2]) * 1000}'


CIRCLE = [
    {"id": number, "name": name, "ctrl_deps": 3 - number, "attrs": [{"name": "rf_id", "value": number}],
     "inputs": {"values": [[1, 7, 0, 256, 4, "cpu"]]}}
    for number, name in ((1, "c10d::allreduce_"), (2, "aten::add_"))
]  # fmt: skip
BROKEN = {
    "cut short": (_cut, "cut short"),
    "not JSON": (lambda folder: _edit(folder, lambda text: text[:-30]), "cut short or no JSON"),
    "no execution graph": (_without("rank-1.graph.json"), "nobody knows who waits for what"),
    "one rank": (_without("rank-1.about.json"), "lacks rank 1 of 2"),
    "no rank 0": (_without("rank-0.about.json"), "no whole capture of rank 0"),
    "another version": (lambda folder: _graph(folder, schema="3.0"), "schema '3.0', known is 1.1"),
    "graph of another step": (lambda folder: _graph(folder, nodes=[]), "of different steps"),
    "another trace": (lambda folder: _edit(folder, lambda t: t.replace('"schemaVersion": 1', '"schemaVersion": 7')),
                      "schemaVersion 7, known is 1"),
    "other collectives": (lambda folder: _edit(folder, lambda t: t.replace("allreduce_", "broadcast_").replace(
        "all_reduce", "broadcast")), "or others; capture the same step"),
    "no steps": (lambda folder: _edit(folder, lambda t: t.replace("ProfilerStep", "Else")), "holds 0 steps"),
    "a kernel of nothing": (lambda folder: _edit(folder, lambda t: t.replace(
        '"traceEvents": [', '"traceEvents": [{"ph": "X", "cat": "kernel"}, ')), "an event of the device has no 'args'"),
    "uneven steps": (lambda folder: _edit(folder, lambda t: t.replace("aten::linear", "aten::other", 1)),
                     "no step of .* has the operators of its first one"),
    "steps at once": (lambda folder: _edit(folder, lambda t: t.replace('"ts": 20000.0', '"ts": 0.0')),
                      "ProfilerStep#20 begins before the step before it has ended"),
    "a gloo run is missing": (lambda folder: _edit(folder, lambda t: t.replace("gloo:all_reduce", "x")),
                              "has no run of 'c10d::allreduce_'"),
    "an event without an end": (lambda folder: _edit(folder, lambda t: t.replace('"dur"', '"duration"', 4)),
                                "is damaged: an event has no 'dur'"),
    "a time of letters": (lambda folder: _edit(folder, lambda t: t.replace('"ts": 20000.0', '"ts": "abc"')),
                          "is damaged: a field of an event is wrong .ts is the text 'abc', and it must be a number"),
    "no number": (lambda folder: _edit(folder, lambda t: t.replace('"dur": 2000.0', '"dur": NaN')), "dur is 'nan'"),
    "less than nothing": (lambda folder: _edit(folder, lambda t: t.replace('"dur": 2000.0', '"dur": -5')),
                          "dur is '-5', and it is microseconds from 0"),
    "later than ever": (lambda folder: _edit(folder, lambda t: t.replace('"ts": 20000.0', '"ts": 1e300')), "1e.300"),
    "dims of letters": (lambda folder: _edit(folder, lambda t: t.replace("[64, 32]", '["a", 32]')),
                        "Input Dims holds 'a', and it is lists of whole numbers"),
    "dims below nothing": (lambda folder: _edit(folder, lambda t: t.replace("[64, 32]", "[-64, 32]")),
                           "Input Dims holds '-64'"),
    "types of no list": (lambda folder: _edit(folder, lambda t: t.replace('"Input type": [', '"Input type": 5, "": [')),
                         "Input type is '5' and no list"),
    "nanoseconds": (lambda folder: _edit(folder, lambda t: re.sub(r'"(ts|dur)": ([0-9.]+)', _times_1000, t)),
                    r"has steps of 10 s, and 'rank-0.about.json' says that they took 10 ms; are its times in another"),
    "a graph in a circle": (lambda folder: _graph(folder, nodes=CIRCLE), "of different steps"),
    "a node of text": (lambda folder: _graph(folder, nodes=[CIRCLE[0] | {"attrs": [{"name": "rf_id", "value": ""}]}]),
                          "rank-1.graph.json' is damaged: a field of a node is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_bad_captures_get_one_sentence(tmp_path: Path, case: str):
    folder = write_capture(tmp_path / "trace", [0.0, 0.0])
    change, said = BROKEN[case]
    change(folder)
    with pytest.raises(RecSmithError, match=said) as error:
        load_capture(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("write", [write_capture, write_device_capture])
def test_a_trace_that_lost_any_one_event_is_predicted_or_refused(tmp_path: Path, write: Callable[..., Path]):
    folder = write(tmp_path / "trace", [6.0, 7.0])
    whole = predict_graph(load_capture(folder).graph).step_s
    file = folder / "rank-1.trace.json.gz"
    raw = json.loads(gzip.decompress(file.read_bytes()))
    outcomes = Counter[str]()
    for place, lost in enumerate(raw["traceEvents"]):
        for events in ([], [{**lost, "ts": lost["ts"] + 90_000}]):  # it is not there, or far from where it was
            rest = [*raw["traceEvents"][:place], *events, *raw["traceEvents"][place + 1 :]]
            file.write_bytes(gzip.compress(json.dumps(raw | {"traceEvents": rest}).encode()))
            try:
                found = load_capture(folder)
            except RecSmithError as error:
                assert "\n" not in str(error)
                outcomes["refused"] += 1
            else:
                assert predict_graph(found.graph).step_s == pytest.approx(whole)  # of the steps that are whole
                outcomes["predicted"] += 1
    assert outcomes["refused"] > 5
    assert outcomes["predicted"] > 5


def test_steps_of_the_same_operators_that_lost_a_kernel_are_told(tmp_path: Path):
    folder = write_capture(tmp_path / "trace", [0.0, 0.0])
    file = folder / "rank-0.trace.json.gz"
    raw = json.loads(gzip.decompress(file.read_bytes()))
    product = [event for event in raw["traceEvents"] if event["name"] == "aten::addmm"][-1]
    product["ts"] += 2500.0  # behind the operator that it was within: the step has an overhead more
    file.write_bytes(gzip.compress(json.dumps(raw).encode()))
    with pytest.raises(CorruptFile, match=r"its steps have the same operators, but step 3 of 3 has \d+ kernels, waits"):
        load_capture(folder)


@pytest.mark.parametrize("name", ["rank-0.trace.json.gz", "rank-0.graph.json", "rank-0.about.json"])
def test_one_file_of_a_capture_is_no_capture(tmp_path: Path, name: str):
    folder = write_capture(tmp_path / "trace", [0.0])
    with pytest.raises(UsageError, match=rf"is one file of a rank .*: recsmith predict {folder}$"):
        is_capture(folder / name)
    with pytest.raises(UsageError, match="is one file of a rank"):
        step_predictor(folder / name)


def test_a_trace_of_another_program_is_no_model_either(tmp_path: Path):
    (tmp_path / "trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(UsageError, match="capture it again: recsmith capture"):
        CliRunner().invoke(app, ["predict", str(tmp_path / "trace.json")], catch_exceptions=False)


def test_what_ifs_are_compared_with_the_predicted_step_and_the_measured_one_with_that(tmp_path: Path):
    folder = str(write_capture(tmp_path / "trace", [0.0, 1.0]))
    shown = CliRunner().invoke(app, ["predict", folder, "--what-if", "overhead=0,link=2x"]).output.splitlines()
    assert shown[0].split(maxsplit=2)[2] == "5 ms with the changes, and 10 ms without, both predicted: -50.0%"
    assert shown[1].split(maxsplit=1)[1].startswith("10 ms without the changes; measured without the profiler: 10 ms")


def test_nonsense_is_refused(tmp_path: Path):
    folder = write_capture(tmp_path / "trace", [0.0])
    (folder / "rank-0.trace.json.gz").write_text("[1, 2]")
    with pytest.raises(CorruptFile, match="no trace of torch"):
        load_capture(folder)


def test_attention_is_two_products_and_five_behind() -> None:
    from recsmith.prediction.operators import kernel_of

    name, dims = "aten::_scaled_dot_product_flash_attention_for_cpu", [[3, 2, 7, 8]] * 3
    assert kernel_of(name, "gemm", dims, [], ["float"] * 3, []).shape == (6.0, 7.0, 16.0, 7.0, 0.0, 1.0)
    behind = kernel_of(f"{name}_backward", "gemm", [*dims, *dims], [], ["float"] * 6, [])
    assert behind.shape == (6.0, 7.0, 40.0, 7.0, 0.0, 1.0)


def test_steps_with_other_numbers_of_the_same_operators_are_one_that_is_scaled(tmp_path: Path) -> None:
    """As lengths of histories make them; here the watched step alone has one operator twice."""
    folder = write_capture(tmp_path / "trace", [0.0])
    whole = walk(load_capture(folder).graph).step_s

    def once_more(text: str) -> str:
        raw = json.loads(text)
        first = min(
            (each for each in raw["traceEvents"] if each["name"] == "aten::linear"), key=lambda each: each["ts"]
        )
        raw["traceEvents"].append({**first, "ts": first["ts"] - 0.2, "dur": 0.1})
        return json.dumps(raw)

    _edit(folder, once_more)
    found = load_capture(folder)
    assert any("stands for all, scaled to the time of a step" in note for note in found.notes)
    assert walk(found.graph).step_s == pytest.approx(whole, rel=0.2)
