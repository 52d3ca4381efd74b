"""One real capture: a small model trains under `recsmith capture`, and its trace is read, predicted and shown."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.machines import a_machine
from support.synthetic_traces import write_capture

from recsmith.cli.app import app
from recsmith.errors import RecSmithError, UsageError
from recsmith.prediction.captures import CaptureSettings, capture_command
from recsmith.prediction.capturing import capture
from recsmith.prediction.graph import Kind, Tape
from recsmith.prediction.models import Model
from recsmith.prediction.predictions import predict_model
from recsmith.prediction.traces import load_capture

SCRIPT = """
import sys, torch
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
net = torch.nn.parallel.DistributedDataParallel(net)
made = torch.optim.SGD(net.parameters(), lr=0.1)
labels = torch.rand(256)
for _ in range(int(sys.argv[1])):
    made.zero_grad()
    inputs = torch.ones(256, 32)
    torch.nn.functional.binary_cross_entropy_with_logits(net(inputs).squeeze(-1), labels).backward()
    made.step()
torch.distributed.destroy_process_group()
"""
MODEL = Model(kind="mlp", dense_features=32, layers=(64,))


MEETINGS = (Kind.ISSUE, Kind.AWAIT)


def kernels_of(tape: Tape) -> list[str]:
    """Kinds of a tape's kernels."""
    return [event.term for event in tape if event.kind == Kind.RUN]


def shapes_of(tape: Tape, kind: str) -> list[tuple[float, ...]]:
    """Shapes of a tape's kernels of a kind."""
    return [event.kernel.shape for event in tape if event.kernel and event.term == kind]


def test_a_job_is_captured_without_a_change_of_its_script(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    settings = CaptureSettings(steps=2, plain=2, skip=1)
    command = [sys.executable, str(tmp_path / "train.py")]
    assert capture_command(tmp_path / "trace", [*command, "9"], settings) == 1
    captured = load_capture(tmp_path / "trace")
    assert captured.notes == ()
    (about,) = captured.abouts
    assert 0 < about.plain_step_s < 1
    (tape,) = captured.graph.ranks
    ((_, described),) = predict_model(MODEL, batches=[256], machine=a_machine())
    (template,) = described.walk.graph.ranks
    assert kernels_of(tape) == ["copy", *kernels_of(template)]  # the script makes its batch
    assert [event.kind for event in tape if event.kind in MEETINGS] == [Kind.ISSUE, Kind.AWAIT]
    assert [event.collective for event in template if event.kind in MEETINGS] == [0, 0]
    assert shapes_of(tape, "gemm") == shapes_of(template, "gemm")
    with pytest.raises(UsageError, match="--force"):
        capture_command(tmp_path / "trace", command, settings)
    with pytest.raises(RecSmithError, match="ended before 8 steps"):
        capture_command(tmp_path / "short", [*command, "3"], settings)


def test_a_command_that_fails_says_so(tmp_path: Path):
    with pytest.raises(RecSmithError, match="ended with code 3; 0 ranks"):
        capture_command(tmp_path / "trace", [sys.executable, "-c", "raise SystemExit(3)"], CaptureSettings())
    with pytest.raises(UsageError, match="cannot start"):
        capture_command(tmp_path / "trace", [str(tmp_path / "nothing")], CaptureSettings())
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "rank-0.about.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot start"):
        capture_command(tmp_path / "old", [str(tmp_path / "nothing")], CaptureSettings(), force=True)
    assert (tmp_path / "old" / "rank-0.about.json").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'notes\.txt'"):
        capture_command(tmp_path / "mine", ["true"], CaptureSettings(), force=True)


def test_a_loop_that_ends_early_says_that_nothing_was_captured(tmp_path: Path):
    with pytest.warns(UserWarning, match="ended after 9 steps, before the 21"), capture(tmp_path / "trace") as begun:  # noqa: PT031
        for _ in range(9):
            begun.step()
    with pytest.raises(UsageError, match="holds 0 traces and no whole capture"):
        CliRunner().invoke(app, ["predict", str(tmp_path / "trace")], catch_exceptions=False)


def test_predict_prints_a_capture_and_writes_its_timeline(tmp_path: Path):
    folder = str(write_capture(tmp_path / "trace", [0.0, 1.0]))
    shown = CliRunner().invoke(app, ["predict", folder, "--timeline", str(tmp_path / "step.json")])
    assert shown.exit_code == 0, shown.output
    assert "all reduce" in shown.output
    assert "10 ms" in shown.output
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2}  # ranks, and the critical path
    told = CliRunner().invoke(app, ["predict", folder, "--what-if", "link=2x,overhead=0", "--format", "json"])
    raw = json.loads(told.output)
    assert raw["step_s"] == pytest.approx((2 + 2 + 1) * 1e-3)
    assert raw["unchanged_s"] == pytest.approx(10e-3)
    assert raw["terms"] == pytest.approx({"gemm": 2e-3, "all_reduce": 2e-3, "elementwise": 1e-3})
