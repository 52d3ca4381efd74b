"""Ranks that tests fork (support/ranks.py) compute what those of torchrun do, to the bit."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.ranks import Forks

pytest.importorskip("torchrec")

from recsmith.jobs.launch import launch
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, run_to_raw

pytestmark = pytest.mark.usefixtures("torchrec")


def test_a_process_with_the_number_of_one_that_has_ended_has_not_ended() -> None:
    forks, (read, write) = Forks(), os.pipe()
    with os.fdopen(read, "rb") as said, os.fdopen(write, "wb") as process:
        forks.process = SimpleNamespace(stdout=said)  # pyright: ignore[reportAttributeAccessIssue]
        process.write(b'{"pid": 7}\n{"ended": 7, "code": 0}\n')
        process.flush()
        assert forks.code_of(7) == 0
        process.write(b'{"pid": 7}\n')
        process.flush()
        assert forks.code_of(7) is None


def a_run(folder: Path) -> Run:
    features = [{"name": name, "num_embeddings": 200, "pooling_factor": 3, "zipf": 1.1} for name in "abc"]
    data = {"format": "generator", "seed": 1, "dense": 2, "features": features, "num_samples": 2_000}
    return Run(
        data=RunData(train=data, batch_size=32), model=RunModel(embedding_dim=8, bottom=(8,), top=(8,)),
        output=str(folder), steps=12, checkpoint=Checkpointing(every=6), metrics=RunMetrics(every=1), plan="auto",
    )  # fmt: skip


def trained(folder: Path, **words: Any) -> tuple[list[float], bytes, str]:
    """Losses, the bytes of the weights, and the command of the process that made the ranks."""
    arguments = {"run": run_to_raw(a_run(folder))}
    made_by = launch("jobs.test_forked_ranks:train_here", arguments, ranks=2, **words)[0]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    losses = [line["logloss"] for line in lines if line["event"] == "train"]
    return losses, (folder / "model" / "weights.safetensors").read_bytes(), made_by


def train_here(run: Any) -> str:
    """Train on this rank; the command of its parent."""
    from recsmith.training.rank import train_on_rank

    train_on_rank(run)
    return Path(f"/proc/{os.getppid()}/cmdline").read_text()


def test_a_job_has_the_same_bits_whatever_started_its_ranks(tmp_path: Path) -> None:
    losses, weights, made_by = trained(tmp_path / "forked")
    assert "support.ranks" in made_by
    fresh_losses, fresh_weights, made_by = trained(tmp_path / "fresh", restarts=1)  # so conftest.py takes torchrun
    assert "recsmith.jobs.agent" in made_by
    assert len(losses) == 12
    assert losses == fresh_losses
    assert losses[-1] < losses[0]  # no NaN, which is never equal either
    assert weights == fresh_weights
