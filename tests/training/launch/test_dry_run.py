"""A dry run tells what will run and refuses what a start refuses; its figures are those of the job, said once."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.systems import is_here, needing, needs_systems

from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import gain_of, said_of
from recsmith.errors import RecSmithError, UsageError
from recsmith.plans import Placement, load_plan, save_plan
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    run_from_raw,
    train,
)
from recsmith.training.run import run_to_raw, save_run

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
FEATURES = [{"name": name, "num_embeddings": rows} for name, rows in (("a", 9_000), ("b", 4), ("c", 700), ("d", 60))]
DATA: dict[str, Any] = {"format": "generator", "seed": 1, "num_samples": 4_000, "dense": 3, "features": FEATURES}


def a_run(folder: Path, words: dict[str, Any] | None = None, **settings: Any) -> Run:
    made = Run(
        data=RunData(train=DATA, batch_size=32), model=RunModel(embedding_dim=8, bottom=(16,), top=(16,)), steps=40,
        output=str(folder / "out"), **settings,
    )  # fmt: skip
    return run_from_raw({**run_to_raw(made), **(words or {})}, "a run")


def told(run: Run | str) -> Any:
    from recsmith.training.launch.dry_run import described

    return described(run)


def systems(run: Run) -> dict[str, tuple[bool, str]]:
    return {each.key: (each.on, each.said) for each in told(run).systems}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"output": "s3://bucket/run"}, "the run's output 's3://bucket/run' is an address"),
        ({"output": "/proc/nowhere"}, "the run's output '/proc/nowhere' cannot be written"),
        ({"output": "/dev/null/x"}, "cannot be written: Not a directory"),
        ({"capture": "/proc/nowhere"}, "capture '/proc/nowhere' cannot be written"),
        needing("search", {"pipeline": "search"}, r"pipeline\.steps, pipeline\.warm_up are missing; give them"),
        needing(
            "search",
            {"pipeline": {"name": "search", "steps": 9, "warm_up": 1}},
            "pipeline is search, and the model has no choices",
        ),
        needing("halves", {"rows": {"name": "split", "upper": "even"}}, "rows.upper is even"),
        needing(
            "halves",
            {"rows": {"name": "split", "upper": "stochastic"}},
            "rows.upper is stochastic, which lower: true has not",
        ),
        needing(
            "tiers",
            {"rows": {"name": "tiered", "folder": "/dev/null", "cache": 0.5}},
            "rows.folder '/dev/null' cannot be written",
        ),
        needing(
            "tiers",
            {"rows": {"name": "tiered", "folder": "/proc/x", "cache": 0.5}},
            "rows.folder '/proc/x' cannot be written",
        ),
    ],
)
def test_what_the_start_refuses_the_dry_run_refuses_alike(words: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        told(a_run(tmp_path, words))
    with pytest.raises(UsageError, match=said):
        train(a_run(tmp_path, words))
    assert not (tmp_path / "out").exists()


@needs_systems("tiers")
def test_tables_split_by_columns_are_no_rows_in_a_file(tmp_path: Path) -> None:
    plan = told(a_run(tmp_path, ranks=2)).plan
    halves = [
        Placement(table=each.table, sharding_type="column_wise", compute_kernel="fused", ranks=(0, 1), widths=(4, 4))
        for each in plan.placements
    ]
    save_plan(replace(plan, placements=tuple(halves), digest=""), str(tmp_path / "plan.json"))
    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.5}
    with pytest.raises(
        UsageError, match="table 'a' is split by columns in the plan, and rows: tiered keeps whole rows"
    ):
        told(a_run(tmp_path, ranks=2, rows=rows, plan=str(tmp_path / "plan.json")))


@pytest.mark.parametrize(
    ("words", "key", "parts"),
    [
        needing("halves", {"rows": "split"}, "rows", ("rows: split: tables take", "longer, ", "in place of")),
        (
            {"model": {"precision": "bf16"}},
            "model.precision",
            ("are of bf16", "; this processor "),
        ),
        needing(
            "halves",
            {"optimizers": {"dense": {"name": "master"}}, "model": {"precision": "bf16"}},
            "optimizers.dense",
            ("of weights of dense layers", "their update takes"),
        ),
        needing(
            "shampoo",
            {"optimizers": {"dense": {"name": "shampoo"}}},
            "optimizers.dense",
            ("shampoo adds to a step", "it keeps"),
        ),
        needing(
            "periods",
            {"data": {"train": DATA, "batch_size": 32, "periods": {"count": 5}}},
            "data.periods",
            ("is scored by",),
        ),
        needing(
            "thresholds",
            {"comms": {"name": "thresholded", "dense": None, "pooled": 0.5}, "ranks": 2},
            "comms",
            ("of pooled embeddings a rank sends",),
        ),
        ({"comms": {"forward": "fp16", "backward": "bf16"}, "ranks": 2}, "comms", ("a rank sends",)),
        needing("remote", {"remote": {"servers": 2}, "ranks": 2}, "remote", ("2 servers hold",)),
        needing(
            "remote",
            {"remote": {"servers": 1, "staleness": 3}, "ranks": 2},
            "remote",
            ("1 server holds", "up to 3 steps (6 batches of 2 trainers)"),
        ),
        needing("watch", {"watch": "auto"}, "watch", ("of a step", "every: 16 would take", "sketch_every: 0 would")),
        needing(
            "arrays", {"array": {"members": {"x": [], "y": ["seed=1"]}, "together": "always"}}, "array", ("2 members",)
        ),
        needing(
            "stored",
            {"model": {"compression": [{"method": "hash", "tables": "a", "factor": 2}]}},
            "model.compression",
            ("a by hash",),
        ),
    ],
)
def test_every_system_that_is_on_is_named(words: dict[str, Any], key: str, parts: Any, tmp_path: Path) -> None:
    made = told(a_run(tmp_path, words))
    on = [each for each in made.systems if each.key == key]
    assert on
    assert all(each.on for each in on)
    assert all(any(part in each.said for each in on) for part in parts)
    assert all(each.said in made.lines for each in made.systems)
    assert made.step is not None
    assert made.step.step_s > 0


def test_a_plain_run_has_no_systems_and_one_step(tmp_path: Path) -> None:
    made = told(a_run(tmp_path))
    assert made.systems == []
    step = made.step
    assert step.step_s == pytest.approx(sum(getattr(step, name) for name in (
        "trainer_s", "reading_s", "embeddings_s", "layers_s", "gradients_s", "optimizer_s")))  # fmt: skip
    assert step.embeddings_s == made.plan.cost.total_s
    assert sum(line.startswith("a step takes ") for line in made.lines) == 1


@needs_systems("halves")
def test_json_is_the_plan_memory_by_rank_step_and_systems(tmp_path: Path) -> None:
    from recsmith.cli.train import train_command

    save_run(a_run(tmp_path, ranks=2, rows="split"), str(tmp_path / "run.json"))
    asked = CliRunner().invoke(train_command, [str(tmp_path / "run.json"), "--dry-run", "--format", "json"])
    assert asked.exit_code == 0, asked.output
    found = json.loads(asked.stdout)
    assert found["schema"] == "recsmith/dry-run/1"
    (tmp_path / "plan.json").write_text(json.dumps(found["plan"]))
    assert len(load_plan(str(tmp_path / "plan.json")).placements) == len(FEATURES)
    assert [each["rank"] for each in found["memory"]] == [0, 1]
    assert all(each["total_bytes"] == each["tables_bytes"] + each["batch_bytes"] + each["layers_bytes"]
               for each in found["memory"])  # fmt: skip
    assert 0 < found["step"]["error"] < 1
    assert found["step"]["step_s"] > found["step"]["embeddings_s"] > 0
    assert [(each["key"], each["on"]) for each in found["systems"]] == [("rows", True)]
    assert any(line.startswith("plan ") for line in found["lines"])


def test_a_limit_that_is_too_small_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.training.job.run_step.memory_limit", lambda: 2**20)
    with pytest.raises(UsageError, match=r"limit of this process is 1 MiB, and the ranks of this job hold .*; raise"):
        told(a_run(tmp_path))


def test_more_than_the_machine_has_is_refused_by_what_takes_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recsmith.training.job.run_step.memory_limit", lambda: None)
    monkeypatch.setattr("recsmith.training.job.run_step.memory_bytes", lambda: 2**28)
    with pytest.raises(UsageError, match=r"this machine has 256 MiB, and the ranks .* beside 2 processes"):
        told(a_run(tmp_path))


@pytest.mark.filterwarnings("ignore:cost model neural")  # that it knows no batches so large
def test_histories_beyond_memory_are_refused(tmp_path: Path) -> None:
    data = {"format": "sequences", "longest": 30_000, "negatives": 1, "split": "train",
            "generated": {"users": 2, "items": 50, "kinds": 2, "events": 30_000}}  # fmt: skip
    run = Run(
        data=RunData(train=data, global_batch_size=512), output=str(tmp_path / "out"), ranks=1, steps=1,
        model=RunModel(name="hstu", embedding_dim=4, arguments={
            "times": "times", "target_time": "target_time", "longest": 30_000, "heads": 16,
        }),
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"this machine has .* are for dense layers: take smaller batches, or shorter"):
        told(run)
    assert not (tmp_path / "out").exists()


def repeated(ids: float) -> dict[str, Any]:
    """Data of sessions whose bags of so many ids repeat."""
    features = [
        {"name": name, "num_embeddings": 900, "pooling_factor": ids, "duplication": 0.95, "lengths": "poisson"}
        for name in "abcdef"
    ]
    return {"format": "generator", "seed": 1, "num_samples": 4_000, "features": features, "sessions": {"size": 16}}


@needs_systems("dedup")
@pytest.mark.parametrize(("ids", "batch", "on"), [(2.0, 64, False), (60.0, 512, True)])
def test_deduplicate_auto_decides_by_its_price_and_says_so(ids: float, batch: int, on: bool, tmp_path: Path) -> None:
    words = {"data": {"train": repeated(ids), "batch_size": batch, "deduplicate": "auto", "keep_together": 16}}
    found, said = systems(a_run(tmp_path, words))["data.deduplicate"]
    assert found == on
    assert said.endswith(f"so data.deduplicate, which is auto, is {'on' if on else 'off'}")
    saved, added, *steps = (_seconds(each) for each in re.findall(r"([0-9.]+ [mµ]?s)\b", said))
    assert (added < saved) == on
    if on:  # the steps of dry runs with and without, as advice asks for them
        plain, distinct = (
            told(a_run(tmp_path, {"data": {**words["data"], "deduplicate": each}})).step.step_s
            for each in ("off", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]])
        )
        assert steps == pytest.approx([distinct, plain], rel=2e-3)
        assert said_of(gain_of(plain, distinct), NAMED["step"]) in said


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


@needs_systems("towers")
def test_a_towers_job_has_one_plain_step(tmp_path: Path) -> None:
    """What towers would save is told of the step that a job of plain tables is told to have."""
    from recsmith.clusters import load_cluster

    plain = a_run(tmp_path, ranks=4)
    plan = told(plain).plan
    cluster = replace(load_cluster("cpu:2x2"), links=plan.cluster.links)
    placed = [
        Placement(table=name, sharding_type="table_wise", compute_kernel="fused", ranks=(rank,))
        for name, rank in (("a", 0), ("b", 2), ("c", 1), ("d", 3))
    ]
    save_plan(replace(plan, cluster=cluster, placements=tuple(placed), digest=""), str(tmp_path / "plan.json"))
    plain = replace(plain, plan=str(tmp_path / "plan.json"))
    model = replace(plain.model, table_module={"name": "towers", "ratio": 2})
    towers = told(replace(plain, model=model))
    [said] = (each.said for each in towers.systems if each.key == "model.table_module")
    with_towers, without = re.findall(r": a step of ([0-9.]+ [mµ]?s); plain tables take ([0-9.]+ [mµ]?s) under", said)[
        0
    ]
    assert _seconds(without) == pytest.approx(told(plain).step.step_s, rel=1e-3)
    assert _seconds(with_towers) == pytest.approx(towers.step.step_s, rel=1e-3)
    assert "towers do not pay: that saves 0.0% of the device time of a sample, less than the 2% from which on " in said
    assert "a change pays, and are another model: those of ratio 2" in said
    with pytest.raises(
        UsageError, match="sparse_dist does not go with towers on several hosts, whose ids cross hosts by"
    ):
        told(replace(plain, model=model, pipeline="sparse_dist"))
    assert "the plan is of 2 hosts, for which ranks of this machine stand in" in towers.notes[0]


@pytest.mark.parametrize("dense", ["adam", *(["shampoo"] if is_here("shampoo") else [])])
def test_a_checkpoint_is_as_large_as_was_told(dense: str, tmp_path: Path) -> None:
    """With the state of its optimizers: of a row of 4 columns row-wise Adagrad keeps a fifth, Adam twice a weight."""
    large = {**DATA, "features": [{"name": "a", "num_embeddings": 400_000}]}
    run = replace(
        a_run(tmp_path), data=RunData(train=large, batch_size=32), checkpoint=Checkpointing(every=1), steps=1,
        model=RunModel(embedding_dim=4, bottom=(256, 128), top=(256, 128)),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="rowwise_adagrad"), dense=DenseOptimizer(name=dense)),
    )  # fmt: skip
    size = told(run).checkpoint_bytes
    train(run)
    made = sum(each.stat().st_size for each in (tmp_path / "out" / "checkpoints").glob("step-*/state/*.distcp"))
    assert size == pytest.approx(made, rel=0.03)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ({"optimizers": {"dense": {"name": "adagrad"}}}, 1),
        ({"optimizers": {"dense": {"name": "sgd", "arguments": {"momentum": 0.9}}}}, 1),
        needing("second_order", {"pipeline": {"name": "progressive_lbfgs", "memory": 3}}, 2 * 3 + 10),
    ],
)
def test_memory_has_what_dense_optimizers_keep_and_steps_that_train_layers(
    words: dict[str, Any], numbers: int, tmp_path: Path
) -> None:
    nothing = told(a_run(tmp_path, {"optimizers": {"dense": {"name": "sgd"}}})).memory[0]
    weights = (16 * 3 + 16) + (8 * 16 + 8) + (16 * 18 + 16) + (16 + 1)  # 3-16-8 below, and 8 + 10 pairs-16-1 above
    found = told(a_run(tmp_path, words)).memory[0]
    assert found.layers - nothing.layers == 4 * weights * numbers


def test_a_class_by_name_says_that_its_state_is_not_known(tmp_path: Path) -> None:
    words = {"optimizers": {"dense": {"name": "torch.optim.adagrad:Adagrad"}}}
    assert [each for each in told(a_run(tmp_path, words)).notes if "not known" in each] == [
        "what optimizers.dense torch.optim.adagrad:Adagrad keeps of a weight is not known; as much as Adam keeps is "
        "counted"
    ]


@needs_systems("shampoo")
def test_each_rank_has_its_own_share_of_what_shampoo_keeps(tmp_path: Path) -> None:
    from recsmith.training.job.dense_bytes import memory_of_run
    from recsmith.training.systems.shampoo.blocks import ShampooSettings, state_of_ranks

    layers = [(16, 3), (16,), (8, 16), (8,), (16, 18), (16,), (1, 16), (1,)]
    kept = state_of_ranks(ShampooSettings(), layers, 2)
    assert min(kept) > 0
    assert kept[0] != kept[1]
    run = {name: a_run(tmp_path, {"optimizers": {"dense": {"name": name}}}, ranks=2) for name in ("sgd", "shampoo")}
    sgd, shampoo = told(run["sgd"]), told(run["shampoo"])
    assert [b.total - a.total for a, b in zip(sgd.memory, shampoo.memory, strict=True)] == kept
    (plain, _), (found, layers_of) = (memory_of_run(each, sgd.plan) for each in run.values())
    assert (found.schedule.totals - plain.schedule.totals == kept).all()
    assert layers_of.state == 0  # which ranks divide already


@needs_systems("tiers")
def test_what_a_dry_run_of_a_small_cache_takes_trains(tmp_path: Path) -> None:
    """Tables of 4 to 9,000 rows and a cache of a thousandth: two batches' rows of each have room."""
    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.001}
    run = a_run(tmp_path, rows=rows)
    on, said = systems(run)["rows"]
    assert on
    assert "2 tables whole, for two batches may read all of their rows" in said
    try:
        assert train(run)["complete"]
    except RecSmithError as error:
        pytest.fail(f"refused after a green dry run: {error}")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose folder has checkpoints."""
    run = replace(a_run(tmp_path_factory.mktemp("begun")), steps=4, checkpoint=Checkpointing(every=2), ranks=1)
    train(run)
    return run


OTHER_DATA = {"train": {**DATA, "seed": 2}, "batch_size": 32}
HALF = [{**each, "data_type": "fp16"} for each in FEATURES]
CHANGED: list[Any] = [
    ({"data": OTHER_DATA}, "the position is of other data .* or give another output and start_from"),
    ({"seed": 3}, "the position is of seed 0 and shuffle True, not seed 3 .* or give another output"),
    needing(
        "periods", {"data": {"train": DATA, "batch_size": 32, "periods": {"count": 4}}}, "a run without data.periods"
    ),
    ({"model": {"embedding_dim": 16}}, "is of another model: .*; give another output"),
    ({"model": {"embedding_dim": 8, "top": [16, 16]}}, "is of another model: .*; give another output"),
    needing(
        "stored",
        {"model": {"embedding_dim": 8, "compression": [{"method": "hash", "above_rows": 10}]}},
        "is of another model: its tables are .*, and those of the run .*hashed.*; give another output",
    ),
    ({"optimizers": {"sparse": {"name": "adagrad"}}}, "optimizers.sparse .* give the run the optimizer"),
    (
        {"model": {"embedding_dim": 8, "bottom": [16], "top": [16], "tables": HALF}},
        "has another precision: .* float32 there and float16 here",
    ),
]


@pytest.mark.parametrize(("words", "said"), CHANGED)
def test_a_run_that_cannot_go_on_from_its_checkpoint_is_refused_by_both(
    words: dict[str, Any], said: str, begun: Run
) -> None:
    changed = run_from_raw({**run_to_raw(begun), "steps": 6, **words}, "a run")
    with pytest.raises(RecSmithError, match=said) as here:
        told(changed)
    with pytest.raises(RecSmithError, match=said) as there:
        train(changed)
    assert (type(here.value), str(here.value)) == (type(there.value), str(there.value))


def test_what_goes_on_is_told_and_another_output_is_a_cure(begun: Run, tmp_path: Path) -> None:
    going_on = replace(begun, steps=6)
    assert any(line.startswith("going on after step 4 of '") for line in told(going_on).lines)
    anew = run_from_raw({**run_to_raw(going_on), "data": OTHER_DATA, "output": str(tmp_path / "out")}, "a run")
    assert not any("going on" in line for line in told(anew).lines)
    assert train(anew)["complete"]


@needs_systems("arrays")
def test_a_finished_array_goes_on_in_a_dry_run_and_not_with_other_data(tmp_path: Path) -> None:
    together = {"array": {"members": {"x": [], "y": ["seed=1"]}, "together": "always"}}
    run = replace(a_run(tmp_path, together), steps=4, checkpoint=Checkpointing(every=2), ranks=1)
    train(run)
    assert told(replace(run, steps=6)).lines
    changed = run_from_raw({**run_to_raw(run), "steps": 6, "data": OTHER_DATA}, "a run")
    for asked in (told, train):
        with pytest.raises(RecSmithError, match="the position is of other data"):
            asked(changed)


def logits_of_two(collection: Any, dense: int, outputs: int, by_value: bool = False) -> Any:
    """A model of one's own of so many logits a sample. by_value: it looks at a number on the way."""
    import torch

    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.last = collection, torch.nn.Linear(dense, outputs)

        def forward(self, values: torch.Tensor, features: Any) -> torch.Tensor:
            found = sum(each.sum(1, keepdim=True) for each in self.tables(features).to_dict().values())
            return self.last(values) + found * (float(values.sum()) if by_value else 1.0)

    return Mine()


@pytest.mark.parametrize(("outputs", "by_value", "refused"), [(2, False, True), (1, False, False), (2, True, False)])
def test_a_model_of_too_many_logits_is_refused_where_shapes_alone_tell(
    outputs: int, by_value: bool, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    arguments = {"outputs": outputs, "by_value": by_value}
    own = {"model": {"name": "test_dry_run:logits_of_two", "embedding_dim": 8, "arguments": arguments}}
    run = replace(a_run(tmp_path, own), steps=1)
    said = (
        r"the model returns logits of shape \(\d+, 2\) for \d+ samples, and the data has 1 label \(label\); return one"
    )
    if refused:
        with pytest.raises(UsageError, match=said):
            told(run)
        with pytest.raises(UsageError, match=said):
            train(run)
    else:
        assert told(run).lines


def test_rows_of_its_own_model_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its logits are counted on shapes: tables of 16 TiB take no memory."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from recsmith.training.job.logits_asked import check_logits
    from recsmith.training.job.models import unsharded

    large = {**DATA, "features": [{"name": "a", "num_embeddings": 2**39}]}
    own = {"name": "test_dry_run:logits_of_two", "embedding_dim": 8, "arguments": {"outputs": 3}}
    run = a_run(tmp_path, {"data": {"train": large, "batch_size": 32}, "model": own})
    with pytest.raises(UsageError, match="returns logits of shape"):
        check_logits(unsharded(run))


@pytest.mark.parametrize(
    ("lines", "said", "line"),
    [
        needing("tiers", "rows: tiered", "rows.folder is missing; give it", 6),
        needing("halves", "rows:\n  name: split\n  uper: even", "rows.uper is no setting; did you mean 'upper'?", 8),
        needing(
            "thresholds",
            "comms:\n  name: thresholded\n  dense: often",
            'comms.dense is "often": input should be a valid number, or',
            8,
        ),
        needing("towers", "model:\n  table_module: {name: towers, ratio: x}", "model.table_module.ratio is", 7),
        ("watchers:\n  - loss_guard\n  - {name: loss_guard, last: 1}", "watchers[1].last is no setting", 8),
        needing("search", "pipeline: search", "pipeline.steps, pipeline.warm_up are missing; give them", 6),
    ],
)
def test_a_setting_of_a_part_is_told_with_its_file_and_line(lines: str, said: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    data = json.dumps({"train": DATA, "batch_size": 32})
    file.write_text(f"schema: recsmith/run/1\nsteps: 1\nranks: 1\noutput: {tmp_path / 'out'}\ndata: {data}\n{lines}\n")
    for asked in (told, train):
        with pytest.raises(UsageError) as refused:
            asked(str(file))
        assert str(refused.value).startswith(f"'{file}': {said}")
        assert str(refused.value).endswith(f" (line {line})")


@needs_systems("tiers")
def test_a_setting_of_the_command_line_is_named_and_has_no_line(tmp_path: Path) -> None:
    from recsmith.training.launch.dry_run import described

    save_run(a_run(tmp_path), str(tmp_path / "run.json"))
    with pytest.raises(UsageError, match=r"^--set rows=tiered: rows\.folder is missing; give it$"):
        described(str(tmp_path / "run.json"), ("rows=tiered",))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"optimizers": {"sparse": {"tables": [{"tables": "aa", "learning_rate": 0.1}]}}}, "optimizers.sparse.tables"),
        ({"model": {"initial": [{"tables": "aa", "reach": 0.1}]}}, "model.initial"),
        needing("stored", {"model": {"compression": [{"method": "hash", "tables": "aa"}]}}, "model.compression"),
    ],
)
def test_rules_that_fit_no_table_are_refused(words: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{said} 'aa' matches no table; did you mean 'a'"):
        told(a_run(tmp_path, words))
