"""Training runs of policies as processes: one that is killed and goes on, and one that was left alone."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.cli import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(recsmith.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def learn(planner: str, folder: Path, words: Sequence[str]) -> list[str]:
    """The command that trains a policy into a folder."""
    return [sys.executable, "-m", "recsmith", "learn", planner, "-o", str(folder / "p.safetensors"), *words]


def _said_here(command: list[str]) -> str:
    """What the command prints in this process, which has imported PyTorch already; of one thread, as the other."""
    import torch

    threads, said = torch.get_num_threads(), io.StringIO()
    torch.set_num_threads(1)
    try:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(io.StringIO()):
            patch.setattr(sys, "argv", command[2:])
            patch.setattr("recsmith.learning.policies.learn.JUDGED", 2)  # after the training
            with pytest.raises(SystemExit) as stop:
                main()
    finally:
        torch.set_num_threads(threads)
    assert not stop.value.code
    return said.getvalue()


def check_that_a_killed_run_goes_on(
    tmp_path: Path, planner: str, words: Sequence[str], told: str, killing: Callable[[int], None] = lambda _: None
) -> Path:
    """Kill a run after its first checkpoint; run again, it ends as one left alone. The folder of the killed one.

    told: what both print in the end. killing: is called with the process just before it is killed.
    """
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(learn(planner, killed, words), env=ENVIRONMENT, **quiet)
    checkpoint, ends = killed / "p.run" / "checkpoint.safetensors", time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.01)
    killing(process.pid)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "p.safetensors").exists()
    for folder in (whole, killed):
        assert told in _said_here(learn(planner, folder, words))
    assert (whole / "p.safetensors").read_bytes() == (killed / "p.safetensors").read_bytes()
    lines = [json.loads(line) for line in (killed / "p.run" / "journal.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    return killed
