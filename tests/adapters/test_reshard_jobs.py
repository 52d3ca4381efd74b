"""A real job goes on under another plan and world size: checkpoints of plain torch.distributed.checkpoint."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.exactness import cpu_cluster
from support.resharding import columns_kept, hashes, own_optimizers, turned

from recsmith.plans import plan_to_raw

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]

STEPS, MORE = 3, 3


def test_a_job_of_three_ranks_goes_on_where_one_of_two_was(tmp_path: Path):
    from recsmith.adapters.reshard.reshard import reshard
    from recsmith.jobs.launch import launch

    plans = {
        "adagrad": [turned(cpu_cluster(1, hosts), turn, "adagrad") for turn, hosts in enumerate((2, 3))],
        "rowwise_adagrad": [columns_kept(cpu_cluster(1, hosts), turn) for turn, hosts in enumerate((2, 3))],
        "own": [own_optimizers(cpu_cluster(1, hosts), turn) for turn, hosts in enumerate((2, 3))],
    }

    def job(number: int, first: int, **folders: str) -> list[list[float]]:
        jobs: list[dict[str, Any]] = [
            {"plan": plan_to_raw(each[number]), "optimizer": each[number].workload.optimizer,
             "steps": [first, STEPS + MORE], "save_after": STEPS,
             **{key: str(tmp_path / f"{optimizer}-{name}") for key, name in folders.items()}}
            for optimizer, each in plans.items()
        ]  # fmt: skip
        ranks = plans["adagrad"][number].cluster.world_size
        return launch("support.resharding:train", {"jobs": jobs}, ranks=ranks, hosts=ranks)[0]

    whole_run = job(0, 0, save="old")
    for optimizer, (old, new) in plans.items():
        folders = tmp_path / f"{optimizer}-old", tmp_path / f"{optimizer}-new"
        report = reshard(folders[0], old, new, folders[1], strict=True)
        assert report.inexact == ()
        assert hashes(folders[0]) == hashes(folders[1])
    resumed = job(1, STEPS, load="new")
    for before, after in zip(whole_run, resumed, strict=True):
        assert len(after) == MORE
        assert after == pytest.approx(before[STEPS:], rel=1e-6)
        assert abs(before[STEPS] - before[0]) > 1e-3  # a job that began anew would show
