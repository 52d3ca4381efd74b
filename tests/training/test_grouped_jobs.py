"""Jobs of several sharding groups (2D): with SGD those of one group, whatever ends and goes on; others as averaged."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.unsharded import trained_unsharded, unsharded_losses

import recsmith
from recsmith.clusters import sharding_group
from recsmith.errors import UsageError
from recsmith.training import (
    Checkpointing,
    Run,
    RunComms,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    evaluate,
    train,
)  # fmt: skip

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
SIZES = {"a": 100, "b": 503, "c": 21, "d": 64}
KINDS = {"a": "table_wise", "b": "row_wise", "c": "data_parallel", "d": "column_wise"}
FEATURES = [{"name": name, "num_embeddings": size} for name, size in SIZES.items()]
STEPS, EVERY, BATCH, DIM = 12, 4, 48, 8
LARGEST_DIFFERENCE = 1e-6


def data(first: int, samples: int) -> dict[str, Any]:
    words = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES}
    return {**words, "first_sample": first, "num_samples": samples}


def grouped_plan(
    folder: Path, *, steps_per_sync: int = 1, optimizer: str = "sgd", kinds: dict[str, str] = KINDS
) -> str:  # fmt: skip
    """Each table by another sharding type, in two groups of two ranks."""
    tables = [{"name": n, "num_embeddings": s, "embedding_dim": DIM, "pooling_factor": 1} for n, s in SIZES.items()]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 4, "optimizer": optimizer, "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in kinds.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    cluster = sharding_group(recsmith.load_cluster("cpu:4"), 2, steps_per_sync=steps_per_sync)
    made = recsmith.plan(folder / "tables.json", cluster, constraints=folder / "rules.json", planner="size_greedy")
    file = folder / f"plan-{made.plan.digest[:8]}.json"
    recsmith.save_plan(made.plan, file)
    return str(file)


def a_run(output: Path, **words: Any) -> Run:
    values: dict[str, Any] = {
        "data": RunData(train=data(0, 20_000), test=data(20_000, 101), global_batch_size=BATCH),
        "model": RunModel(embedding_dim=DIM, bottom=(8,), top=(8,)),
        "output": str(output),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="sgd", learning_rate=0.5)),
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1),
    }
    return Run(**{**values, **words})


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run in two groups of two ranks, averaged in every step, and what came of it."""
    folder = tmp_path_factory.mktemp("grouped")
    run = a_run(folder / "out", plan=grouped_plan(folder))
    return run, train(run)


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(folder / "model/weights.safetensors")


def trained_in_groups(run: Run, groups: int, every: int) -> list[float]:
    """Losses of a run of four ranks by one unsharded model a group, whose tables are averaged every so many steps.

    Rank r is of group r % groups. Gradients of dense layers, and of the table that all ranks copy, are means over all.
    """
    import torch
    from training.unsharded import is_table

    from recsmith.training.batches import training_batches
    from recsmith.training.job.models import build_task
    from recsmith.training.job.sharded import draw_weights
    from recsmith.training.optimizers.building import sparse_arguments, table_class
    from recsmith.training.sources import open_source
    from recsmith.training.stores.device import DeviceRows
    from recsmith.training.tables.plain import features_of, initial_weights_of

    source, ranks, own = open_source(run), 4, run.optimizers.sparse
    tasks = [build_task(run.model, source.schema, run.seed, tables_on="cpu") for _ in range(groups)]
    for task in tasks:
        draw_weights(DeviceRows(task), initial_weights_of(task), run.seed)
    tables = [[each for name, each in task.named_parameters() if is_table(name)] for task in tasks]
    kinds = [table_class(own.name)(each, **sparse_arguments(own)) for each in tables]
    dense = [
        torch.optim.Adam([each for name, each in task.named_parameters() if not is_table(name)], lr=1e-3)
        for task in tasks
    ]
    sizes, features = run.data.batch_sizes(ranks), features_of(tasks[0])
    read = [training_batches(source, sizes, features, rank=rank, ranks=ranks) for rank in range(ranks)]
    found: list[float] = []
    for step in range(1, STEPS + 1):
        losses = [tasks[rank % groups](next(batches))[0] for rank, batches in enumerate(read)]
        for group, task in enumerate(tasks):
            task.zero_grad()
            torch.stack(losses[group::groups]).mean().backward()
        for name, *rest in zip(dict(tasks[0].named_parameters()), *(task.parameters() for task in tasks), strict=True):
            if not is_table(name) or ".c." in name:  # what all ranks hold
                mean = torch.stack([each.grad for each in rest]).mean(0)
                for each in rest:
                    each.grad.copy_(mean)
        for optimizer in (*kinds, *dense):
            optimizer.step()
        if step % every == 0:
            for alike in zip(*tables, strict=True):
                states = [kind.state[each].get("sum") for kind, each in zip(kinds, alike, strict=True)]
                for tensors in (alike, *([states] if states[0] is not None else [])):
                    with torch.no_grad():
                        mean = torch.stack(list(tensors)).mean(0)
                        for each in tensors:
                            each.copy_(mean)
        found.append(float(torch.stack(losses).mean().detach()))
    return found


def test_with_sgd_two_groups_train_as_one_process_does(trained: tuple[Run, dict[str, Any]]):
    from recsmith.training.stores.device import DeviceRows
    from recsmith.training.tables.plain import exported_names

    run, _ = trained
    task, expected = trained_unsharded(run, STEPS)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=LARGEST_DIFFERENCE)
    assert expected[-1] < expected[0]
    there, here = weights(Path(run.output)), {name: each.detach().numpy() for name, each in task.state_dict().items()}
    names = exported_names(task, DeviceRows(task).whole())
    assert {names[name] for name in here} == there.keys()
    for name, whole in here.items():
        apart = np.abs(there[names[name]] - whole).max() / np.abs(whole).max()
        assert apart <= LARGEST_DIFFERENCE, name  # false of NaN


def test_a_resumed_job_of_groups_ends_with_the_same_bits(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    again = from_step(run, EVERY, tmp_path / "again")
    made = train(run, settings=(f"output={again}", "pipeline=sparse_dist", "metrics.evaluate_every=3"))
    assert made["test"] == result["test"]
    assert (again / "model/weights.safetensors").read_bytes() == Path(
        run.output, "model/weights.safetensors"
    ).read_bytes()
    assert losses(again) == losses(Path(run.output))


def test_one_group_goes_on_from_two(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    elsewhere = from_step(run, 2 * EVERY, tmp_path / "elsewhere")
    train(run, settings=(f"output={elsewhere}", "ranks=2", "plan=auto"))
    assert losses(elsewhere) == pytest.approx(losses(Path(run.output)), rel=LARGEST_DIFFERENCE)
    assert recsmith.load_plan(elsewhere / "plan.json").cluster.replication is None
    scores = evaluate(run.output, ranks=2)
    assert scores.logloss == pytest.approx(result["test"]["logloss"], rel=1e-6)


def test_adagrad_averaged_every_third_step_trains_as_its_reference_and_is_resharded(tmp_path: Path):
    from recsmith.torchrec import reshard

    sparse = RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05))
    plan = grouped_plan(tmp_path, steps_per_sync=3, optimizer="adagrad")
    run = a_run(tmp_path / "out", plan=plan, optimizers=sparse, checkpoint=Checkpointing(every=2 * 3, keep=3))
    train(run)  # averaged before it is saved, as it is anyway
    expected, of_one = trained_in_groups(run, 2, 3), unsharded_losses(run, STEPS)
    assert losses(tmp_path / "out") == pytest.approx(expected, rel=LARGEST_DIFFERENCE)
    assert max(abs(a - b) for a, b in zip(expected, of_one, strict=True)) > 1e-4  # it is another training, and met

    at = from_step(run, 6, tmp_path / "resharded") / "checkpoints/step-00000006"
    kinds = {**KINDS, "a": "row_wise", "d": "table_wise"}
    other = grouped_plan(tmp_path, steps_per_sync=3, optimizer="adagrad", kinds=kinds)
    reshard(at / "state", plan, other, at / "new")
    shutil.rmtree(at / "state")
    (at / "new").rename(at / "state")
    shutil.copy(other, at / "plan.json")
    train(run, settings=(f"output={tmp_path / 'resharded'}", f"plan={other}"))
    assert losses(tmp_path / "resharded") == pytest.approx(expected, rel=LARGEST_DIFFERENCE)


def test_a_plan_that_is_made_for_a_job_of_groups_has_groups(trained: tuple[Run, dict[str, Any]]):
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.plan import plan_here

    before, parts = recsmith.load_plan(trained[0].plan), unsharded(replace(trained[0], plan="auto"))
    made = {ranks: plan_here(parts, ranks, ranks, before).cluster for ranks in (2, 4, 6)}
    assert {ranks: each.job_world_size for ranks, each in made.items()} == {2: 2, 4: 4, 6: 6}
    replicas = [each.replication and each.replication.replicas for each in made.values()]
    assert replicas == [None, 2, 3]


def test_what_does_not_go_with_groups_is_refused(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    from recsmith.training.launch.launching import dry_run
    from recsmith.training.run.parts import Messages, SeveralGroups, TableOptimizer
    from recsmith.training.run.refusals import refusals

    run = replace(trained[0], output=str(tmp_path))
    background = Checkpointing(every=EVERY, background=True)
    with pytest.raises(UsageError, match=r"checkpoint\.background changes when whole tables are copied"):
        dry_run(replace(run, checkpoint=background))
    with pytest.raises(UsageError, match="pipeline: accumulated changes how a step is made"):
        dry_run(replace(run, pipeline={"name": "accumulated", "batches": 2}))
    with pytest.raises(UsageError, match="the job has 3"):
        dry_run(replace(run, ranks=3))
    for part in (TableOptimizer("adam"), Messages({"name": "thresholded", "pooled": 0.125})):
        assert len(list(refusals([SeveralGroups(), part]))) == 1
    assert not list(refusals([SeveralGroups(), TableOptimizer("adagrad"), Messages(RunComms(forward="fp16"))]))


def test_a_dry_run_tells_of_all_ranks(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    lines = dry_run(replace(trained[0], output=str(tmp_path / "out")))
    assert "12 a rank and step on 4 ranks" in lines[1]
    assert lines[2].endswith("1 table_wise; in 2 sharding groups of 2 ranks, averaged every step")
    first, second, third, fourth = lines[3].partition("by rank: ")[2].partition(" (")[0].split(", ")
    assert first == second != third == fourth  # neighbours hold the same


def from_step(run: Run, step: int, target: Path) -> Path:
    """A copy of a run's folder as it was when a job was killed after a step."""
    shutil.copytree(run.output, target)
    for folder in (target / "checkpoints").iterdir():
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)
    shutil.rmtree(target / "model")
    return target
