"""A run as a trainer of Ray Train, as far as one machine goes; without Ray, its workers' part in a thread of a rank."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.plans import two_tables

from recsmith.errors import MissingExtra, UsageError
from recsmith.plans import save_plan
from recsmith.training import Run, RunData, ray_trainer, run_to_raw
from recsmith.training.launch.ray_train import workers_of

pytestmark = pytest.mark.usefixtures("torchrec")
DATA = {"format": "generator", "seed": 1, "features": [{"name": "a", "num_embeddings": 300}], "num_samples": 256}


def a_run(folder: Path, **words: Any) -> Run:
    return Run(**{"data": RunData(train=DATA, batch_size=16), "output": str(folder / "out"), "steps": 2, **words})


def test_workers_are_those_of_the_plan_or_as_asked(tmp_path: Path) -> None:
    assert workers_of(a_run(tmp_path), 6) == 6
    assert workers_of(a_run(tmp_path, ranks=3), None) == 3
    with pytest.raises(UsageError, match="nobody says how many ranks"):
        workers_of(a_run(tmp_path), None)
    save_plan(two_tables(), tmp_path / "plan.json")
    planned = a_run(tmp_path, plan=str(tmp_path / "plan.json"))
    assert workers_of(planned, None) == two_tables().cluster.world_size
    with pytest.raises(UsageError, match="the trainer is to have 99 workers; leave workers out"):
        workers_of(planned, 99)


def test_without_ray_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.training.launch.ray_train.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"a trainer of Ray Train needs Ray: pip install 'ray"):
        ray_trainer(a_run(tmp_path), workers=2)


def test_a_rank_trains_in_a_thread_of_a_group_that_somebody_made(tmp_path: Path) -> None:
    from recsmith.jobs.launch import launch

    found = launch("support.ray_workers:in_a_thread", {"run": run_to_raw(a_run(tmp_path))}, ranks=2)
    assert [(each["step"], each["complete"]) for (each,) in found] == [(2, True)] * 2
    assert json.loads((tmp_path / "out/model/card.json").read_text())["step"] == 2


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
@pytest.mark.filterwarnings("ignore")
def test_ray_trains_a_run_on_two_workers(tmp_path: Path) -> None:
    import ray  # type: ignore[import-not-found]

    ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        result = ray_trainer(a_run(tmp_path), workers=2, gpus=False).fit()
    finally:
        ray.shutdown()
    assert result.metrics["step"] == 2
    assert (tmp_path / "out/model/card.json").exists()
