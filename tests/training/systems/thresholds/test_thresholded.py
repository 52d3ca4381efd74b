"""Fewer numbers on the wire: nothing is lost, shares are kept, and a job that is resumed trains the same bits."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.plans import two_tables
from torch import nn

import recsmith
from recsmith.errors import RecSmithError, UsageError
from recsmith.plans import Plan
from recsmith.training import (
    Checkpointing,
    Run,
    RunComms,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    train,
)
from recsmith.training.collectives import collectives_of
from recsmith.training.job.card import read_card
from recsmith.training.job.models import unsharded
from recsmith.training.job.preparing import predicted_step, prepare
from recsmith.training.job.sharded import dense_shapes
from recsmith.training.launch.dry_run import described
from recsmith.training.results.serving import load_model
from recsmith.training.sources import open_data
from recsmith.training.systems.thresholds.deciding import ALONE, decided
from recsmith.training.systems.thresholds.dense import DenseThresholds, _counts, decoded, encoded
from recsmith.training.systems.thresholds.pooled import _message, _read, largest
from recsmith.training.systems.thresholds.settings import AUTO_SHARE, WINDOW, Thresholded

FEATURES = [{"name": name, "num_embeddings": 4000} for name in "abc"]
pytestmark = pytest.mark.usefixtures("torchrec")
DATA = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES, "num_samples": 4000}
STEPS, EVERY = 10, 4
ADAGRAD = RunOptimizers(sparse=SparseOptimizer(name="adagrad"))  # whose state is not of whole rows, however a plan cuts
SIZE = 140_000  # numbers of a bucket with two gaps that 16 bits do not hold


def kill_once(step: int, _: float, __: object) -> None:
    """The watcher of a run: kill -9 of rank 1 in step 6, of a job that was not killed yet."""
    killed = Path(os.environ["KILLED"])
    if step == 6 and os.environ["RANK"] == "1" and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def thresholds(**settings: Any) -> DenseThresholds:
    return DenseThresholds(Thresholded(**settings), nn.Linear(2, 2))


@given(
    st.lists(st.integers(0, SIZE - 1), unique=True, max_size=30).map(sorted),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.data(),
)
def test_messages_are_read_as_they_were_written(places: list[int], kind: torch.dtype, data: st.DataObject):
    numbers = data.draw(st.lists(st.floats(-10, 10, width=16), min_size=len(places), max_size=len(places)))
    at, values = torch.tensor(places, dtype=torch.int64), torch.tensor(numbers).to(kind)
    message = encoded(at, values, SIZE)
    found_at, found = decoded(message, kind, SIZE)
    whole = torch.zeros(SIZE, dtype=kind).index_add_(0, found_at, found)
    assert torch.equal(whole, torch.zeros_like(whole).index_add_(0, at, values))
    bridges = len(found_at) - len(places)
    assert bridges <= SIZE // 65_536
    assert len(message) == len(found_at) * (kind.itemsize + 2)


@given(st.integers(1, 40), st.sampled_from([torch.float32, torch.bfloat16]), st.data())
def test_no_message_is_longer_than_all_values(size: int, kind: torch.dtype, data: st.DataObject):
    places = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=size).map(sorted))
    at, values = torch.tensor(places, dtype=torch.int64), torch.arange(1, len(places) + 1).to(kind)
    message = encoded(at, values, size)
    assert len(message) == min(size * kind.itemsize, len(places) * (kind.itemsize + 2))
    whole = torch.zeros(size, dtype=kind).index_add_(0, *decoded(message, kind, size))
    assert torch.equal(whole, torch.zeros(size, dtype=kind).index_copy_(0, at, values))


@pytest.mark.parametrize("values", ["fp32", "bf16"])
def test_what_is_not_sent_is_kept(values: str):
    made, numbers = thresholds(dense=0.05, values=values), torch.Generator().manual_seed(0)
    given_, sent = torch.zeros(2000, dtype=torch.float64), torch.zeros(2000, dtype=torch.float64)
    for _ in range(30):
        gradient = torch.randn(2000, generator=numbers)
        at, chosen = made.chosen("w", gradient.clone())
        given_ += gradient
        sent.index_add_(0, at, chosen.double())
    assert len(at) < 400
    assert torch.allclose(sent + made.of["w"].left, given_, atol=1e-4, rtol=0)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.2])
def test_as_many_are_sent_as_should_be(share: float):
    """Gradients grow and shrink by ten, so that a threshold that stays sends all of them or none."""
    made, numbers = thresholds(dense=share), torch.Generator().manual_seed(0)
    size, steps, sent = 20_000 if share < 0.1 else 2_000, 400, list[int]()
    for step in range(steps):
        scale = 10 ** torch.sin(torch.tensor(step / 60))
        sent.append(len(made.chosen("w", torch.randn(size, generator=numbers) * scale)[0]))
    assert sum(sent[:50]) / size / 50 == pytest.approx(share, rel=0.6)
    assert sum(sent) / size / steps == pytest.approx(share, rel=0.1)


def test_a_pass_of_zeros_teaches_nothing_and_what_is_no_number_is_told_to_all():
    made = thresholds(dense=0.1)
    at, values = made.chosen("w", torch.zeros(50))
    assert (len(at), len(values), made.of["w"].steps, made.of["w"].threshold) == (0, 0, 0, 0.0)
    gradient = torch.arange(1.0, 51.0)
    gradient[3], gradient[7] = torch.nan, torch.inf
    at, values = made.chosen("w", gradient)
    assert {3, 7} <= set(at.tolist())
    assert made.of["w"].left.isfinite().all()
    assert made.of["w"].threshold < 51
    at, _ = made.chosen("one", torch.tensor([0.25]))
    assert at.tolist() == [0]


def test_equal_gradients_are_all_above_their_threshold_at_first():
    made, sent = thresholds(dense=0.1), list[int]()
    for _ in range(60):
        sent.append(len(made.chosen("w", torch.ones(50))[0]))
    assert sent[0] == 50
    assert sum(sent) / 60 / 50 == pytest.approx(0.1, rel=0.5)


def test_ranks_that_train_different_steps_are_named(monkeypatch: pytest.MonkeyPatch):
    def all_gather(every: list[torch.Tensor], mine: torch.Tensor) -> None:
        for rank, each in enumerate(every):
            each.copy_(mine + torch.tensor([rank, 2 * rank]))

    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RecSmithError, match="rank 1 sums its 9th bucket of gradients where this rank sums its 7th"):
        _counts(100, 7, torch.device("cpu"))


def test_codecs_are_beside_dense_thresholds_and_not_beside_pooled_ones():
    comms = Thresholded(forward="fp16", backward="bf16")
    assert comms.bytes_per_value() == RunComms(forward="fp16", backward="bf16").bytes_per_value()
    assert "whose partial sums" in (Thresholded(forward="int8").refuses(_by_rows()) or "")
    with pytest.raises(UsageError, match=r"and comms\.backward say fp16 and fp32"):
        Thresholded(pooled=0.5, forward="fp16")


def _by_rows() -> Plan:
    plan = two_tables()
    first, *rest = plan.placements
    return replace(plan, placements=(replace(first, sharding_type="row_wise", ranks=(0, 1)), *rest))


def test_a_warm_up_goes_down_where_the_loss_levels_off_and_thresholds_follow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda mean: mean.mul_(2))  # of another rank like this one
    made, numbers, shares = thresholds(dense=0.05, warm_up="loss"), torch.Generator().manual_seed(0), list[float]()
    assert made.warm_up is not None
    for step in range(12 * WINDOW):
        loss = 2.0 ** -min(step // WINDOW, 3)  # halves in three windows, and stays there
        made.warm_up.sum, made.warm_up.steps = made.warm_up.sum + loss, made.warm_up.steps + (made.share > 0.05)
        made.look()
        if made.share < 1:
            made.chosen("w", torch.randn(2000, generator=numbers))
        shares.append(made.share)
        if step == 5 * WINDOW + 3:
            kept, made = made.state_dict(), thresholds(dense=0.05, warm_up="loss")
            made.load_state_dicts([kept, kept])
            assert made.warm_up is not None
    assert [shares.index(each) for each in (1.0, 0.25, 0.0625, 0.05)] == [0, *(n * WINDOW - 1 for n in (5, 6, 7))]
    assert shares[-1] == 0.05
    assert made.of["w"].sent / made.of["w"].steps == pytest.approx(1, rel=0.1), "of the last share alone"
    assert Thresholded(dense=0.05, warm_up="loss").warm_steps == 4 * WINDOW
    assert Thresholded().warm_steps == 0


def test_ranks_of_another_number_share_what_was_left():
    before, after = [thresholds(dense=0.1) for _ in range(2)], thresholds(dense=0.1)
    for rank, made in enumerate(before):
        made.chosen("w", torch.randn(100, generator=torch.Generator().manual_seed(rank)))
    after.load_state_dicts([made.state_dict() for made in before])
    mean = (before[0].of["w"].left + before[1].of["w"].left) / 2
    assert torch.equal(after.of["w"].left, mean)
    assert mean.any()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dense": 0.0}, "^comms.dense is 0.0; it is a share, above 0 and below 1$"),
        ({"dense": 1.0}, "comms.dense is 1, at which all gradients cross as in any job; give null"),
        ({"pooled": 1.5}, "comms.pooled is 1.5; it is a share"),
        ({"dense": None}, "neither dense nor pooled"),
        ({"renew": 0}, "comms.renew is 0"),
        ({"dense": None, "pooled": 0.5, "warm_up": "loss"}, "comms.warm_up is of gradients of dense layers"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        Thresholded(**settings)


def test_plans_that_send_sums_are_refused_and_sequences_cross_whole():
    plan, sums, comms = two_tables(), _by_rows(), Thresholded(pooled=0.5)
    assert comms.refuses(plan) is None
    assert "table 'a' is row_wise, whose ranks send partial sums" in (comms.refuses(sums) or "")
    assert Thresholded().refuses(sums) is None
    first, *rest = plan.workload.tables
    beside = replace(plan.workload, tables=(replace(first, pooling="none"), *rest))
    assert comms.refuses(replace(plan, workload=beside)) is None
    alone = replace(plan.workload, tables=tuple(replace(each, pooling="none") for each in plan.workload.tables))
    assert "all tables have pooling none" in (comms.refuses(replace(plan, workload=alone)) or "")


@pytest.mark.parametrize(("rate", "pays"), [(12.5e6, True), (50e9, False)])
def test_auto_sends_less_where_links_are_slow_and_says_why(rate: float, pays: bool):
    plan = two_tables()
    links = replace(plan.cluster.links, intra_host_bandwidth=rate, inter_host_bandwidth=rate)
    slow = replace(plan, cluster=replace(plan.cluster, links=links, device=replace(plan.cluster.device, kind="cpu")))
    wanted: dict[str, Any] = {"name": "thresholded", "dense": "auto"}
    comms, (why, *quality) = decided(wanted, slow, 1_000_000)
    assert collectives_of(comms) == (Thresholded(dense=AUTO_SHARE) if pays else RunComms())
    assert [line.partition(",")[0] for line in quality] == ["quality: where 0.5% of gradients crossed"] * pays
    assert why.startswith("gradients of 1,000,000 dense numbers: ")
    assert why.endswith("so comms.dense, which is auto, sends all of them") != pays
    assert ("auto, sends 0.50%, and each step gets " in why and why.endswith(" shorter")) == pays
    assert ", of which 1 ms are calls, however few the numbers" in why
    kept, _ = decided({**wanted, "pooled": 0.5}, slow, 1_000_000)
    found: Any = collectives_of(kept)
    assert (found.dense, found.pooled) == (AUTO_SHARE if pays else None, 0.5)
    assert decided(RunComms(), slow, 1_000_000) == (RunComms(), [])
    with pytest.raises(UsageError, match=r"1e-12, which is less than one of the 1,000,000 numbers .* 1e-06"):
        decided({**wanted, "dense": 1e-12}, slow, 1_000_000)


def test_what_a_share_costs_is_told_before():
    plan = two_tables()
    _, lines = decided({"name": "thresholded", "dense": 0.02, "pooled": 0.5}, plan, 1_000_000)
    assert [line.partition(":")[0] for line in lines[1:]] == ["quality", "pooled embeddings", "quality"]
    assert "quality: where 2.0% of gradients crossed, steps 1 to 50 were 1.1 points" in lines[1]
    for share, said in ((0.1, "2.0%"), (0.009, "0.5%")):
        line = decided({"name": "thresholded", "dense": share}, plan, 1_000_000)[1][1]
        assert line.startswith(f"quality: where {said} of gradients crossed, the nearest share that was measured, ")
    mosts: dict[Any, float] = {"fp32": 0.66, "bf16": 0.49}
    for values, most in mosts.items():
        line = decided({"name": "thresholded", "dense": 0.9, "values": values}, plan, 1_000_000)[1][1]
        assert f"choosing saves no bytes; give {most} or less, or null" in line
        assert Thresholded(dense=most, values=values).saves_places
        assert not Thresholded(dense=most + 0.01, values=values).saves_places
    warm = {"name": "thresholded", "warm_up": "loss"}
    assert "this run has 160 steps, so the warm-up fills it" in decided(warm, plan, 1_000_000, 160)[1][1]
    assert "fills it" not in decided(warm, plan, 1_000_000, 1_000)[1][1]
    alone = replace(plan, cluster=recsmith.load_cluster("cpu:1"))
    assert decided({**warm, "dense": "auto"}, alone, 1_000_000) == ({**warm, "dense": "auto"}, [ALONE])


@pytest.mark.parametrize(("values", "entry"), [("fp32", 6), ("bf16", 4)])
def test_bytes_follow_the_share_and_the_ranks(values: Any, entry: int):
    cluster = two_tables().cluster
    links = replace(cluster.links, intra_host_bandwidth=1e6, inter_host_bandwidth=1e6)
    whole, few, _ = Thresholded(dense=0.01, values=values).step_seconds(replace(cluster, links=links), 10**6)
    assert whole / few == pytest.approx(8 / entry / (0.01 * cluster.world_size))


def a_run(output: Path, comms: Any, **words: Any) -> Run:
    return Run(
        data=RunData(train=DATA, test={**DATA, "first_sample": 4000, "num_samples": 400}, global_batch_size=48),
        model=RunModel(embedding_dim=8, bottom=(16,), top=(16,)), output=str(output), comms=comms, steps=STEPS,
        checkpoint=Checkpointing(every=EVERY, keep=3), optimizers=ADAGRAD, metrics=RunMetrics(every=1),
        **{"ranks": 2, **words},
    )  # fmt: skip


def mixed_plan(folder: Path) -> str:
    """Tables a and b by columns on both ranks, c on the second alone, so that the first has none of its type."""
    workload = recsmith.Workload(batch_size=24, optimizer="sgd", tables=tuple(
        recsmith.Table(name=name, num_embeddings=4000, embedding_dim=8,
                       features=(recsmith.Feature(name=name, pooling_factor=1.0),))
        for name in "abc"
    ))  # fmt: skip
    space = recsmith.Space(types=("table_wise", "column_wise"), kernels=("fused",))
    made = recsmith.plan(workload, "cpu:2", planner="size_greedy", space=space).plan
    placed = tuple(
        replace(old, ranks=(1,))
        if old.table == "c"
        else replace(old, sharding_type="column_wise", ranks=(0, 1), widths=(4, 4))
        for old in made.placements
    )
    recsmith.save_plan(replace(made, placements=placed, digest=""), folder / "plan.json")
    return str(folder / "plan.json")


def losses(folder: Path) -> list[float]:
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [event["logloss"] for event in events if event["event"] == "train"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    comms = {"name": "thresholded", "dense": 0.05, "pooled": 0.5, "values": "bf16"}
    folder = tmp_path_factory.mktemp("thresholded")
    run = a_run(folder / "out", comms, plan=mixed_plan(folder))
    return run, train(run)


def test_all_columns_are_plain_training(tmp_path: Path, trained: tuple[Run, dict[str, Any]]):
    plan = trained[0].plan
    plain = train(a_run(tmp_path / "plain", RunComms(), plan=plan))
    every = train(a_run(tmp_path / "all", {"name": "thresholded", "dense": None, "pooled": 1.0}, plan=plan))
    assert losses(tmp_path / "all") == losses(tmp_path / "plain")
    assert every["test"] == plain["test"]
    run, result = trained
    assert losses(Path(run.output))[0] != pytest.approx(losses(tmp_path / "plain")[0], rel=1e-7)
    assert losses(Path(run.output)) == pytest.approx(losses(tmp_path / "plain"), rel=0.05)
    assert result["sent_bytes"] < plain["sent_bytes"]
    assert every["pooled_sent_share"] == 1
    assert every["pooled_all_bytes"] == 24 * 24 * 4, (
        "of 24 columns for 24 samples: a rank's own there, the others' back"
    )


def test_a_job_says_how_much_of_all_was_sent(trained: tuple[Run, dict[str, Any]]):
    run, result = trained
    numbers = sum(math.prod(shape) for shape in dense_shapes(unsharded(run).task))
    assert result["dense_sent_share"] == pytest.approx(0.05, rel=0.6)
    assert result["dense_all_bytes"] == 4 * numbers
    share = result["dense_sent_share"]
    assert result["dense_sent_bytes"] == pytest.approx(4 * share * numbers + 16, rel=0.05), "few bridges and buckets"
    assert result["pooled_sent_share"] == 0.5
    assert result["pooled_sent_bytes"] == result["pooled_all_bytes"] * 3 / 8, "two bytes and a place for each second"
    told = [json.loads(line) for line in Path(run.output, "log.jsonl").read_text().splitlines()]
    said = result["brought"]["comms"]
    assert said.startswith(f"comms: thresholded: {share:.2%} of dense gradients sent (")
    assert "; 5.00% of dense gradients was wanted; at that share steps were predicted to get " in said
    assert said.endswith(" longer on the plan's links")
    lines = [each["dense_sent_share"] for each in told if each["event"] == "train"]
    assert sum(lines) / len(lines) == pytest.approx(share)


def test_what_is_told_before_is_what_the_job_logs(trained: tuple[Run, dict[str, Any]]):
    run, result = trained
    told = described(run)
    start = json.loads(Path(run.output, "log.jsonl").read_text().splitlines()[0])
    assert told.step is not None
    assert start["predicted_step_s"] == told.step.step_s
    line = next(each.said for each in told.systems if each.said.startswith("pooled embeddings: 12 of 24 columns cross"))
    assert f": {result['pooled_sent_bytes'] / result['pooled_all_bytes']:.1%} of all bytes" in line


def test_a_job_predicts_the_step_that_its_dry_run_tells_where_auto_decides(tmp_path: Path):
    plan = recsmith.load_plan(mixed_plan(tmp_path))
    links = replace(plan.cluster.links, intra_host_bandwidth=1e5)
    recsmith.save_plan(replace(plan, cluster=replace(plan.cluster, links=links), digest=""), tmp_path / "slow.json")
    steps = list[float]()
    for comms in (
        {"name": "thresholded", "dense": "auto", "pooled": 0.25},
        {"name": "thresholded", "dense": "auto"},
        {},
    ):
        run = a_run(tmp_path / "out", comms or RunComms(), plan=str(tmp_path / "slow.json"))
        told, predicted = described(run).step, predicted_step(prepare(run, 2))
        assert told == predicted
        assert told is not None
        steps.append(told.step_s)
    assert steps[0] < steps[1] < steps[2], "fewer columns and fewer gradients make steps shorter"


def test_a_resumed_job_ends_with_the_same_bits(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    again = tmp_path / "again"
    shutil.copytree(run.output, again)
    for folder in ("model", "checkpoints/step-00000008", "checkpoints/step-00000010"):
        shutil.rmtree(again / folder)
    after = train(run, settings=(f"output={again}",))
    figures = [name for name in result if name.startswith(("dense_", "pooled_"))]
    assert len(figures) == 6
    assert {name: after[name] for name in ("test", *figures)} == {name: result[name] for name in ("test", *figures)}
    _check_equal(again, Path(run.output))


@pytest.mark.soak
def test_a_job_that_was_killed_ends_with_the_same_bits(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, result = trained
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    watched = replace(
        run, output=str(tmp_path / "again"), watchers=("training.systems.thresholds.test_thresholded:kill_once",)
    )
    assert train(watched, max_restarts=1)["test"] == result["test"]
    assert (tmp_path / "killed").exists()
    _check_equal(tmp_path / "again", Path(run.output))


def _check_equal(again: Path, before: Path) -> None:
    weights = "model/weights.safetensors"
    assert losses(again) == losses(before)
    assert (again / weights).read_bytes() == (before / weights).read_bytes()


def test_the_served_model_sees_the_columns_that_it_was_trained_with(trained: tuple[Run, dict[str, Any]]):
    run, result = trained
    kept = read_card(Path(run.output, "model")).columns
    assert kept is not None
    assert (kept.share, kept.values) == (0.5, "bf16")
    assert sorted(piece for group in kept.groups for piece in group) == [
        ("a", 0, 4), ("a", 4, 8), ("b", 0, 4), ("b", 4, 8), ("c", 0, 8),
    ]  # fmt: skip
    predictor, data = load_model(Path(run.output, "model")), open_data(run.data.test, "data.test")
    with data.batches(rank=0, world_size=1, batch_size=400, seed=0, shuffle=False) as batches:
        batch = next(batches)
    served, labels = predictor.predict(batch)[:, 0], batch.labels[:, 0]
    logloss = -np.log(np.where(labels > 0, served, 1 - served)).mean()
    assert logloss == pytest.approx(result["test"]["logloss"], rel=1e-5)
    for module in predictor.task.modules():
        module._forward_hooks.clear()
    assert not np.array_equal(predictor.predict(batch)[:, 0], served)


def test_one_rank_sends_nothing_and_goes_on_from_two(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, _ = trained
    shutil.copytree(run.output, tmp_path / "again")
    result = train(run, settings=(f"output={tmp_path / 'again'}", "ranks=1", "plan=auto", f"steps={STEPS + 2}"))
    assert result["step"] == STEPS + 2


def test_prices_and_messages_have_one_rule():
    comms = Thresholded(pooled=0.5)
    assert [comms.message_bytes(width) for width in (256, 32_770)] == [128 * 5, 16_385 * 8]
    for width in (258, 32_768):  # as prices take them, which are asked for before a rank's columns are known
        assert comms.bytes_per_value() == (comms.message_bytes(width) / width,) * 2


@pytest.mark.parametrize(("samples", "width"), [(3, 0), (3, 5), (0, 5), (1, 1), (2, 300)])
@pytest.mark.parametrize("values", ["fp32", "bf16"])
def test_columns_are_read_as_they_were_sent(samples: int, width: int, values: Any):
    settings, kept = Thresholded(pooled=0.5, values=values), -(-width // 2)
    rows = torch.randn(samples, width, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    columns = largest(rows, kept)
    message = _message(rows, columns, width, settings)
    assert message.shape == (samples, settings.message_bytes(width))
    found, numbers = _read(message.flatten(), samples, width, kept, settings)
    assert torch.equal(found, columns)
    assert torch.equal(numbers.float(), rows.gather(1, columns))
