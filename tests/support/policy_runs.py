"""Training runs of policies as processes: one that is killed and goes on, and one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import recsmith

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(recsmith.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def learn(planner: str, folder: Path, words: Sequence[str]) -> list[str]:
    """The command that trains a policy into a folder."""
    return [sys.executable, "-m", "recsmith", "learn", planner, "-o", str(folder / "p.safetensors"), *words]


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
        command = learn(planner, folder, words)
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
        assert told in done.stdout
    assert (whole / "p.safetensors").read_bytes() == (killed / "p.safetensors").read_bytes()
    lines = [json.loads(line) for line in (killed / "p.run" / "journal.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    return killed
