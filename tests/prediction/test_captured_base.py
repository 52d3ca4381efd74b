"""A capture is the base of advice on the tables of its own job, and of no other."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.dlrm_plans import DLRM, a_plan
from support.machines import a_machine
from support.synthetic_traces import write_capture

from recsmith.cli.app import app
from recsmith.errors import UsageError
from recsmith.plans import save_plan
from recsmith.prediction.captured_base import base_of, factors_of
from recsmith.prediction.graph import Graph
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.kernels import LOOKUPS
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.predict import predict_graph

PLAN = a_plan((0, 1, 0, 1, 0))
TABLES = PLAN.workload


def captured(batch: int = TABLES.batch_size) -> Graph:
    """The step of the plan's job."""
    return replace(model_graph(DLRM, a_machine(), plan=PLAN, ranks=2, batch=batch), measured_s=0.5)


def test_what_a_step_took_is_the_base_and_how_far_its_trace_is_off_is_told():
    found = base_of(captured(), TABLES, PLAN.cluster)
    off = abs(predict_graph(captured()).step_s / 0.5 - 1)
    assert found.step_s == 0.5
    assert found.about.startswith("captured: a step took 500 ms, and its trace says ")
    assert found.about.endswith(f", {off:.0%} off")
    unmeasured = replace(captured(), measured_s=None)
    assert base_of(unmeasured, TABLES, PLAN.cluster).step_s == predict_graph(unmeasured).step_s


def test_a_capture_of_another_job_is_refused():
    first, *others = TABLES.tables
    grown = replace(TABLES, tables=(replace(first, num_embeddings=10 * first.num_embeddings), *others))
    with pytest.raises(UsageError, match=r"the capture is of another model: its tables have .* elements, and these"):
        base_of(captured(), grown, PLAN.cluster)
    with pytest.raises(UsageError, match="the capture is of 2 ranks, and the job is advised on for 1"):
        base_of(captured(), TABLES, replace(PLAN.cluster, local_world_size=1, hosts=1))
    with pytest.raises(UsageError, match=r"the capture is of .* samples a rank, .*; give --batch-size"):
        base_of(captured(2 * TABLES.batch_size), TABLES, PLAN.cluster)
    with pytest.raises(UsageError, match=r"; give --set data.batch_size=\d+, or capture"):
        base_of(captured(2 * TABLES.batch_size), TABLES, PLAN.cluster, "--set data.batch_size={}")


def test_on_the_command_line_it_stands_for_the_step_time(tmp_path: Path):
    save_plan(PLAN, str(tmp_path / "plan.json"))
    folder = str(write_capture(tmp_path / "trace", [0.0, 1.0]))
    words = ["advise", str(tmp_path / "plan.json"), "--capture", folder]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "base     captured: a step took 10 ms, and its trace says " in done.stdout
    assert "was not checked, for its lookups do not tell" in done.stdout
    assert "10 ms a step as measured" in done.stdout
    both = CliRunner().invoke(app, [*words, "--step-time", "8ms"])
    assert "--step-time and --capture both say what a step takes" in str(both.exception)


def test_the_parts_of_a_predicted_step_are_corrected_by_those_of_a_capture():
    graph = captured()
    step = JobStep(trainer_s=0.01, reading_s=0.01, embeddings_s=0.02, layers_s=0.1, gradients_s=0.004, optimizer_s=0.1)
    factors = factors_of(graph, base_of(graph, TABLES, PLAN.cluster), step)
    corrected = factors.corrected(step)
    assert corrected.step_s == pytest.approx(0.5)
    assert corrected.error == max(step.error, abs(predict_graph(graph).step_s / 0.5 - 1))  # as its sentence says
    lookups = [
        sum(event.seconds for event in tape if event.is_kernel and event.term in LOOKUPS) for tape in graph.ranks
    ]
    exchanged = sum(each.seconds for each in graph.collectives if each.name != "all_reduce")
    assert corrected.embeddings_s == pytest.approx(max(lookups) + exchanged)
    assert corrected.gradients_s == pytest.approx(sum(e.seconds for e in graph.collectives if e.name == "all_reduce"))
    assert corrected.layers_s / corrected.optimizer_s == pytest.approx(1)
    assert factors.about.startswith("captured: a step took 500 ms, ")
    twice = factors.corrected(replace(step, embeddings_s=0.04))
    assert twice.step_s == pytest.approx(0.5 + corrected.embeddings_s)
    from_files = factors.corrected(replace(step, rows_s=0.04))  # which the captured job has none of
    assert from_files.step_s == pytest.approx(0.54)
