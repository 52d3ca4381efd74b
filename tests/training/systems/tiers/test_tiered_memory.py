"""What trains in little memory resumes in it: inside a memory cgroup, where a whole table does not fit."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.cgroups import memory_group, run_in

pytestmark = pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec")

LOADS = """
import sys
from pathlib import Path
import torch
from recsmith._process import proc_bytes
from recsmith.training.systems.tiers.cache import ScratchFile
from recsmith.adapters.chunk_bytes import RowReader
from recsmith.training.stores.checkpoint import PlainObjects, write_checkpoint
from torch.distributed.checkpoint.state_dict_loader import load

folder, group, shape = Path(sys.argv[1]), Path(sys.argv[2]), (1 << 19, 64)  # 128 MiB
file = ScratchFile(str(folder), [shape, shape])
saved, target = map(torch.from_numpy, file.arrays)
saved[::1000] = 3.0
write_checkpoint(folder / "state", {"w": saved})
limit = proc_bytes("self/status", "RssAnon") + 48 * 2**20
(group / "memory.limit_in_bytes").write_text(str(limit))
load({"w": target}, storage_reader=RowReader(folder / "state"), planner=PlainObjects(), no_dist=True)
assert all(torch.equal(a, b) for a, b in zip(saved.split(1 << 14), target.split(1 << 14)))
print("loaded")
"""


def test_a_table_larger_than_what_memory_is_left_is_loaded(tmp_path: Path) -> None:
    with memory_group() as group:
        code, said, _ = run_in(group, "-W", "ignore", "-c", LOADS, str(tmp_path), str(group))
    assert code == 0, said
    assert said.endswith("loaded\n")


@pytest.mark.soak
def test_a_job_resumes_and_is_evaluated_in_the_memory_that_it_trained_in(tmp_path: Path) -> None:
    """A table of 256 MiB, 128 MiB beside the most that training held; it ends with the bits of a job that was whole."""
    names = {"a": 1 << 20, "b": 4096}
    features = [{"name": name, "num_embeddings": rows} for name, rows in names.items()]
    data = {"format": "generator", "num_samples": 2000, "dense": 2, "features": features}
    run = {
        "schema": "recsmith/run/1", "output": str(tmp_path / "out"), "ranks": 1, "steps": 6,
        "data": {"train": data, "test": {**data, "num_samples": 100}, "batch_size": 32},
        "model": {"embedding_dim": 64, "bottom": [64], "top": [8]},
        "rows": {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.05}, "checkpoint": {"every": 3},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    train = ("-m", "recsmith", "train", str(tmp_path / "run.json"))
    with memory_group() as group:
        code, said, most = run_in(group, *train)
    assert code == 0, said
    whole = (tmp_path / "out/model/weights.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "out/model")
    shutil.rmtree(tmp_path / "out/checkpoints/step-00000006")
    for words in (train, ("-m", "recsmith", "evaluate", str(tmp_path / "out"), "--ranks", "1")):
        with memory_group() as group:
            (group / "memory.limit_in_bytes").write_text(str(most + 128 * 2**20))
            code, said, _ = run_in(group, *words)
        assert code == 0, said
    lines = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "start"] == [0, 3]
    assert (tmp_path / "out/model/weights.safetensors").read_bytes() == whole


BACK = """
from recsmith.training.watchers.protocol import Watcher, Wish

class Back(Watcher):
    asked = False
    def look(self, seen):
        if seen.step != 6 or Back.asked:
            return None
        Back.asked = True
        return Wish("roll_back", "asked for")
"""


@pytest.mark.soak
def test_a_job_goes_back_in_the_memory_that_it_trained_in(tmp_path: Path) -> None:
    """Its caches of 128 MiB go before there are new ones, and what glibc keeps of them, too."""
    features = [{"name": "a", "num_embeddings": 1 << 20}]
    data = {"format": "generator", "num_samples": 2000, "dense": 2, "features": features}
    run = {
        "schema": "recsmith/run/1", "output": str(tmp_path / "out"), "ranks": 1, "steps": 9,
        "data": {"train": data, "batch_size": 32}, "model": {"embedding_dim": 64, "bottom": [64], "top": [8]},
        "rows": {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.5}, "checkpoint": {"every": 4},
    }  # fmt: skip
    (tmp_path / "backwards.py").write_text(BACK)
    (tmp_path / "run.json").write_text(json.dumps(run))
    with memory_group() as group:
        code, said, most = run_in(group, "-m", "recsmith", "train", str(tmp_path / "run.json"))
    assert code == 0, said
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "run.json").write_text(json.dumps({**run, "watchers": ["backwards:Back"]}))
    with memory_group() as group:
        (group / "memory.limit_in_bytes").write_text(str(most + 96 * 2**20))
        code, said, _ = run_in(group, "-m", "recsmith", "train", str(tmp_path / "run.json"))
    assert code == 0, said
    assert "asked for (roll_back): training goes on after step 4" in said


@pytest.mark.soak
def test_a_limit_that_is_too_small_for_launcher_and_rank_ends_in_a_sentence(tmp_path: Path) -> None:
    features = [{"name": "a", "num_embeddings": 1 << 20}]
    data = {"format": "generator", "num_samples": 2000, "dense": 2, "features": features}
    run = {
        "schema": "recsmith/run/1", "output": str(tmp_path / "out"), "ranks": 1, "steps": 3,
        "data": {"train": data, "batch_size": 32}, "model": {"embedding_dim": 64, "bottom": [64], "top": [8]},
        "rows": {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.9},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    with memory_group() as group:
        (group / "memory.limit_in_bytes").write_text(str(850 * 2**20))
        code, said, _ = run_in(group, "-m", "recsmith", "train", str(tmp_path / "run.json"), timeout=120)
    assert code == 2, said
    assert "that the processes under its memory limit hold (launcher, agent, ranks), and the limit is 850 MiB" in said
