"""`recsmith train` as people use it: what a signal ends is no success, and the same command goes on with it."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torchrec")

from click.testing import CliRunner

from recsmith.cli.train import train_command
from recsmith.errors import RecSmithError

pytestmark = pytest.mark.usefixtures("torchrec")
PATIENCE_S = 120.0


def test_a_job_that_a_signal_ended_fails_and_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "out"
    features = [{"name": "item", "num_embeddings": 20}]
    data = {"format": "generator", "seed": 1, "dense": 1, "features": features, "num_samples": 10**6}
    run = {
        "schema": "recsmith/run/1", "output": str(output), "ranks": 1, "data": {"train": data, "batch_size": 4},
        "metrics": {"every": 1}, "model": {"embedding_dim": 4, "bottom": [4], "top": [4]},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))

    def end_it() -> None:
        log, begun = output / "log.jsonl", time.monotonic()
        while not (log.exists() and '"train"' in log.read_text()) and time.monotonic() - begun < PATIENCE_S:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end_it)
    ending.start()
    done = CliRunner().invoke(train_command, [str(tmp_path / "run.json")])
    ending.join()
    step = json.loads((output / "log.jsonl").read_text().splitlines()[-1])["step"]
    assert done.exit_code == RecSmithError.exit_code
    assert str(done.exception) == f"a signal ended training after step {step:,}; it is not complete"
    assert f"{step:,} steps, ended by a signal" in done.stdout
    again = CliRunner().invoke(train_command, [str(tmp_path / "run.json"), "--set", f"steps={step + 2}"])
    assert again.exit_code == 0
    assert f"{step + 2:,} steps, complete" in again.stdout
