"""Which parts of a run do not go together: every pair of the table in docs/reference/run.md, and no other."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import pytest
from support.plans import two_tables
from support.systems import EVERY, needs_systems, of_system

from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.training import DenseOptimizer, Run, RunComms, RunData, RunModel, RunOptimizers, RunTable, SparseOptimizer
from recsmith.training.listed import SYSTEMS
from recsmith.training.run.parts import (
    ACCUMULATED,
    AHEAD_OF_BATCHES,
    BACKGROUND,
    BF16_PRODUCTS,
    BUILT_IN_MODEL,
    CHANGES,
    CPU,
    FEED,
    FP32_PRODUCTS,
    GPU,
    INITIAL,
    NO_LAYERS,
    OWN_SOURCE,
    OWN_TABLES,
    RATES,
    SOFTMAX,
    TASKS,
    TWO_TOWER,
    WEIGHTS,
    Messages,
    NarrowTables,
    OwnStep,
    PlannedTables,
    Sequences,
    SeveralGroups,
    SharedFeature,
    TableOptimizer,
)
from recsmith.training.run.refusals import (
    check_together,
    data_parts,
    layer_parts,
    model_parts,
    pairs_table,
    placed_parts,
    refusals,
)
from recsmith.training.seams.capabilities import POOLED, ROWS, Capabilities, Part, PlainPart

ADVICE = re.compile(r"; \w+")  # after the rule and the values, what to do
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "run.md"


def placed(kind: str) -> Plan:
    """A plan of two tables, the first a sequence table and by one sharding type on two ranks."""
    plan = two_tables()
    first, *rest = plan.workload.tables
    tables = (replace(first, pooling="none", features=first.features), *rest)
    ranks = (0, 1) if kind == "row_wise" else tuple(range(plan.cluster.world_size))
    here = replace(plan.placements[0], sharding_type=kind, ranks=ranks, widths=())
    others = tuple(replace(each, sharding_type="table_wise", ranks=(0,), widths=()) for each in plan.placements[1:])
    return replace(plan, placements=(here, *others), workload=replace(plan.workload, tables=tables))


PARTS: tuple[Part, ...] = (
    *of_system("dedup", "parts", lambda own: [own.Deduplicated()]),
    *of_system("balance", "", lambda own: [own.DEALT]),
    *of_system("stored", "", lambda own: [own.COMPRESSION]),
    *of_system("dynamic", "parts", lambda own: [own.RawIds(("a",))]),
    Sequences("a", "dlrm"), WEIGHTS, BUILT_IN_MODEL, OWN_TABLES, OWN_SOURCE, FEED,
    *of_system("periods", "", lambda own: [own.IN_PERIODS, own.MixedPeriods("future_gradient")]),
    OwnStep("mine:Step"), AHEAD_OF_BATCHES, CPU, TableOptimizer("rowwise_adagrad"), TableOptimizer("adam"),
    TableOptimizer("lamb"), TableOptimizer("partial_rowwise_adam"), NarrowTables("a"), NarrowTables("a", "fp16"),
    NarrowTables("a", "int8"),
    *of_system("halves", "parts", lambda own: [own.SplitHalves()]),
    *of_system("tiers", "parts", lambda own: [
        own.TablesInFile(), own.OnDisk("a", "device"), own.OnDisk(None, "tiered")]),
    *of_system("stash", "parts", lambda own: [own.TablesRest()]),
    GPU,
    *of_system("halves", "parts", lambda own: [own.HalfLayers("split")]),
    *of_system("shampoo", "", lambda own: [own.FactoredLayers()]),
    *of_system("second_order", "parts", lambda own: [
        own.LayersByStep("dance"), own.UnusedSettings(("optimizers.dense.clip_norm",), ())]),
    NO_LAYERS, FP32_PRODUCTS, BF16_PRODUCTS,
    TableOptimizer("adagrad"), Messages(RunComms()),
    Messages(RunComms(forward="int8")),
    *([Messages({"name": "thresholded", "pooled": 0.125})] if "thresholds" in SYSTEMS else []),
    PlannedTables(placed("row_wise"), "cpu"), PlannedTables(placed("data_parallel"), "cpu"),
    *of_system("towers", "parts", lambda own: [own.TowersOfHosts(own.Towers(ratio=2, towers=(("a",), ("b",))))]),
    *of_system("narrow", "parts", lambda own: [
        own.FewerUnits(), own.LayerOptimizer("adam"), own.LayerOptimizer("adamw", 0.01), own.LayerOptimizer("lbfgs")]),
    *of_system("arrays", "parts", lambda own: [own.TrainedTogether()]),
    *of_system("remote", "parts", lambda own: [own.TablesOnServers()]),
    SOFTMAX, TASKS, TWO_TOWER, ACCUMULATED, CHANGES, RATES, INITIAL, SharedFeature("a"), SeveralGroups(),
)  # fmt: skip
REFUSED = {
    ("a plan of sharding groups", "array"),
    ("a plan of sharding groups", "comms: thresholded"),
    ("a plan of sharding groups", "data.deduplicate"),
    ("a plan of sharding groups", "model.compression"),
    ("a plan of sharding groups", "model.dynamic"),
    ("a plan of sharding groups", "model.narrow"),
    ("a plan of sharding groups", "model.table_module"),
    ("a plan of sharding groups", "model.table_module: towers"),
    ("a plan of sharding groups", "optimizers.dense.name: shampoo"),
    ("a plan of sharding groups", "optimizers.dense.name: split"),
    ("a plan of sharding groups", "optimizers.sparse.name: adam"),
    ("a plan of sharding groups", "optimizers.sparse.name: lamb"),
    ("a plan of sharding groups", "optimizers.sparse.name: partial_rowwise_adam"),
    ("a plan of sharding groups", "pipeline: accumulated"),
    ("a plan of sharding groups", "pipeline: dance"),
    ("a plan of sharding groups", "pipeline: module:Class"),
    ("a plan of sharding groups", "remote"),
    ("a plan of sharding groups", "rows: split"),
    ("a plan of sharding groups", "rows: tiered"),
    ("a plan of sharding groups", "rows: stashed"),
    ("model.dynamic", "data.deduplicate"),
    ("model.dynamic", "data.balance"),
    ("model.dynamic", "data.periods"),
    ("model.dynamic", "pipeline: module:Class"),
    ("model.dynamic", "pipeline: sparse_dist"),
    ("model.dynamic", "rows: split"),
    ("model.dynamic", "rows: stashed"),
    ("model.dynamic", "a GPU"),
    ("model.dynamic", "pipeline: dance"),
    ("model.dynamic", "plan: data_parallel, table_wise"),
    ("model.dynamic", "pipeline: accumulated"),
    ("model.dynamic", "array"),
    ("model.dynamic", "remote"),
    ("model.dynamic", "model.initial"),
    ("model.dynamic", "model.compression"),
    ("model.dynamic", "model.table_module"),
    ("model.dynamic", "model.table_module: towers"),
    ("array", "a feature in two tables"),
    ("remote", "a feature in two tables"),
    ("a feature in two tables", "data.deduplicate"),
    ("a feature in two tables", "model.compression"),
    ("a feature in two tables", "model.dynamic"),
    ("a feature in two tables", "model.table_module"),
    ("a feature in two tables", "model.table_module: towers"),
    ("model.loss: softmax", "pipeline: dance"),
    ("model.loss: softmax", "model.tasks"),
    ("model.tasks", "pipeline: dance"),
    ("model.name: two_tower", "data.deduplicate"),
    ("model.name: two_tower", "array"),
    ("pipeline: accumulated", "data.batch_changes"),
    ("pipeline: accumulated", "remote"),
    ("optimizers.sparse.tables", "array"),
    ("optimizers.sparse.tables", "remote"),
    ("model.initial", "array"),
    ("model.initial", "remote"),
    ("model.initial", "model.table_module"),
    ("model.initial", "model.table_module: towers"),
    ("model.initial", "model.compression"),
    ("model.initial", "data.deduplicate"),
    ("pipeline: accumulated", "data.periods.update: future_gradient"),
    ("pipeline: accumulated", "array"),
    ("pipeline: dance", "data.batch_changes"),
    ("model.name: two_tower", "remote"),
    ("data.deduplicate", "model.compression"),
    ("data.deduplicate", "pipeline: sparse_dist"),
    ("data.balance", "data.deduplicate"),
    ("data.balance", "data.periods"),
    ("data.balance", "data.train: {source: ...}"),
    ("data.balance", "array"),
    ("data.balance", "remote"),
    ("pipeline: dance", "model.narrow"),
    ("pooling: none", "data.deduplicate"),
    ("pooling: none", "weights of ids"),
    ("pooling: none", "model.name of torchrec.models"),
    ("pooling: none", "plan: data_parallel, table_wise"),
    ("model.table_module", "model.compression"),
    ("model.table_module", "data.deduplicate"),
    ("model.table_module: towers", "model.compression"),
    ("model.table_module: towers", "data.deduplicate"),
    ("model.table_module: towers", "pooling: none"),
    ("model.table_module: towers", "rows: split"),
    ("model.table_module: towers", "rows: tiered"),
    ("model.table_module: towers", "rows: stashed"),
    ("model.table_module: towers", "optimizers.dense.name: split"),
    ("model.table_module: towers", "optimizers.dense.name: shampoo"),
    ("model.table_module: towers", "comms: int8"),
    ("model.table_module: towers", "comms: thresholded"),
    ("data.train: {source: ...}", "data.feed"),
    ("data.train: {source: ...}", "data.deduplicate"),
    ("data.periods", "data.train: {source: ...}"),
    ("data.periods.update: future_gradient", "data.deduplicate"),
    ("data.periods.update: future_gradient", "pipeline: module:Class"),
    ("data.periods.update: future_gradient", "pipeline: dance"),
    ("optimizers.sparse.name: adam", "a CPU"),
    ("optimizers.sparse.name: adam", "plan: data_parallel, table_wise"),
    ("optimizers.sparse.name: lamb", "a CPU"),
    ("optimizers.sparse.name: partial_rowwise_adam", "a CPU"),
    ("optimizers.sparse.name: lamb", "plan: data_parallel, table_wise"),
    ("optimizers.sparse.name: partial_rowwise_adam", "plan: data_parallel, table_wise"),
    ("data_type: bf16", "a CPU"),
    ("data_type: bf16", "a GPU"),
    ("optimizers.dense.name: split", "model.precision: fp32"),
    ("optimizers.dense.name: split", "comms: thresholded"),
    ("optimizers.dense.name: shampoo", "optimizers.dense.name: split"),
    ("optimizers.dense.name: shampoo", "a model without dense layers"),
    ("pipeline: dance", "a model without dense layers"),
    ("model.table_module: towers", "pipeline: dance"),
    ("pipeline: dance", "model.precision: bf16"),
    ("pipeline: dance", "optimizers.dense.clip_norm"),
    ("pipeline: dance", "comms: thresholded"),
    ("pipeline: dance", "optimizers.dense.name: split"),
    ("pipeline: dance", "optimizers.dense.name: shampoo"),
    ("model.narrow", "optimizers.dense.name: adamw, weight_decay 0.01"),
    ("model.narrow", "optimizers.dense.name: lbfgs"),
    ("model.narrow", "optimizers.dense.name: shampoo"),
    ("model.narrow", "optimizers.dense.name: split"),
    ("model.narrow", "pipeline: dance"),
    ("model.table_module: towers", "model.narrow"),
    ("plan: key_value", "a CPU"),
    ("plan: fused", "a CPU"),
    ("rows: tiered", "data.deduplicate"),
    ("rows: stashed", "data.deduplicate"),
    ("rows: tiered", "data_type: bf16"),
    ("rows: stashed", "data_type: bf16"),
    ("rows: tiered", "data_type: fp16"),
    ("rows: stashed", "data_type: fp16"),
    ("rows: tiered", "data_type: int8"),
    ("rows: stashed", "data_type: int8"),
    ("rows: tiered", "a GPU"),
    ("rows: stashed", "a GPU"),
    ("rows: split", "data.deduplicate"),
    ("rows: split", "optimizers.sparse.name: adagrad"),
    ("rows: split", "optimizers.sparse.name: adam"),
    ("rows: split", "optimizers.sparse.name: lamb"),
    ("rows: split", "optimizers.sparse.name: partial_rowwise_adam"),
    ("rows: split", "data_type: bf16"),
    ("rows: split", "data_type: fp16"),
    ("rows: split", "data_type: int8"),
    ("rows: split", "a GPU"),
    ("rows: split", "plan: data_parallel, table_wise"),
    ("array", "model.compression"),
    ("array", "model.precision: bf16"),
    ("array", "data.deduplicate"),
    ("array", "model.table_module"),
    ("array", "model.table_module: towers"),
    ("array", "data.periods"),
    ("array", "pipeline: dance"),
    ("array", "pipeline: module:Class"),
    ("array", "optimizers.dense.name: split"),
    ("array", "optimizers.dense.name: shampoo"),
    ("array", "rows: split"),
    ("array", "model.narrow"),
    ("array", "rows: tiered"),
    ("array", "rows: stashed"),
    ("array", "comms: int8"),
    ("array", "comms: thresholded"),
    ("remote", "data.deduplicate"),
    ("remote", "model.compression"),
    ("remote", "model.table_module"),
    ("remote", "data.periods"),
    ("remote", "pipeline: module:Class"),
    ("remote", "pipeline: sparse_dist"),
    ("remote", "optimizers.sparse.name: adam"),
    ("remote", "optimizers.sparse.name: lamb"),
    ("remote", "optimizers.sparse.name: partial_rowwise_adam"),
    ("remote", "data_type: bf16"),
    ("remote", "data_type: fp16"),
    ("remote", "data_type: int8"),
    ("remote", "rows: split"),
    ("remote", "rows: tiered"),
    ("remote", "rows: stashed"),
    ("remote", "a GPU"),
    ("remote", "optimizers.dense.name: split"),
    ("remote", "optimizers.dense.name: shampoo"),
    ("remote", "pipeline: dance"),
    ("remote", "model.precision: bf16"),
    ("remote", "comms: int8"),
    ("remote", "comms: thresholded"),
    ("remote", "plan: data_parallel, table_wise"),
    ("remote", "model.table_module: towers"),
    ("remote", "model.narrow"),
    ("comms: int8", "plan: row_wise, table_wise"),
    ("comms: thresholded", "data.deduplicate"),
}


def test_pairs() -> None:
    """Each pair of parts is refused where the table says so, by one sentence, and nowhere else."""
    labels, sentences = {part.label for part in PARTS}, set[str]()
    found = set[frozenset[str]]()
    for pair in combinations(PARTS, 2):
        said = list(refusals(pair))
        assert len(said) <= 1
        if said:
            found.add(frozenset(part.label for part in pair))
            sentences.update(said)
            with pytest.raises(UsageError) as refused:
                check_together(pair)
            assert [str(refused.value)] == said
    assert found == {frozenset(pair) for pair in REFUSED if labels.issuperset(pair)}
    assert all(ADVICE.search(sentence) for sentence in sentences)


def test_most_pairs_are_refused_by_what_parts_own_need_and_lack() -> None:
    """A hand-written reason is the exception."""
    by_hand = {(part.label, other.label) for part, other in permutations(PARTS, 2) if part.refuses(other) is not None}
    assert len(by_hand) <= 30


def test_a_part_that_nobody_tried_with_others_is_refused_by_what_it_owns_and_needs() -> None:
    mine, other = PlainPart("mine", Capabilities({ROWS})), PlainPart("rows: other", Capabilities({ROWS}))
    assert list(refusals([mine, BACKGROUND, WEIGHTS])) == []
    assert list(refusals([mine, other])) == [
        "mine and rows: other both say where the rows of tables are; leave one of them out"
    ]
    needing = PlainPart("needing", needs=Capabilities({ROWS, POOLED}))
    assert list(refusals([other, needing])) == [
        "rows: other changes where the rows of tables are, which does not go with needing yet; leave one of them out"
    ]
    assert list(refusals([needing, Sequences("a", "mine:build")])) == [
        "needing needs pooled tables, and table 'a' has pooling none; leave one of them out"
    ]
    for alone in PARTS:
        if alone.label in ("array", "remote"):
            with pytest.raises(UsageError, match=r"mine changes .* does not go with"):
                check_together([alone, mine])


@needs_systems(*EVERY)
def test_docs_have_the_table_of_pairs() -> None:
    assert pairs_table(PARTS) in REFERENCE.read_text("utf-8")


def test_on_a_gpu_copies_of_sequence_tables_go() -> None:
    plan = placed("data_parallel")
    assert not list(refusals([Sequences("a", "mine:build"), TableOptimizer("adagrad"), PlannedTables(plan, "cuda")]))


def labels(parts: Sequence[Part]) -> list[str]:
    return [part.label for part in parts]


@needs_systems("dedup", "halves")
def test_parts_are_found_in_a_run() -> None:
    run = Run(
        data=RunData(train={"source": "mine:Clicks"}, feed=2, deduplicate="auto"), output="out",
        model=RunModel(compression=(), tables=(RunTable(name="a", num_embeddings=9, pooling="none"),)),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="lamb")), comms=RunComms(forward="int8"),
    )  # fmt: skip
    assert labels(data_parts(run)) == ["data.train: {source: ...}", "data.feed", "data.deduplicate", "comms: int8"]
    found = model_parts(run.model, tables=run.model.tables, weighted=True)
    assert found == [Sequences("a", "dlrm"), BUILT_IN_MODEL, WEIGHTS]
    plan = placed("data_parallel")
    assert placed_parts(run, plan, "cpu") == [
        CPU, TableOptimizer("lamb"), Messages(run.comms), Sequences("a", "dlrm"), PlannedTables(plan, "cpu"),
        FP32_PRODUCTS,
    ]  # fmt: skip
    first, second, *rest = plan.workload.tables
    narrow = (replace(first, data_type="bf16"), replace(second, data_type="fp16"), *rest)
    half = replace(plan, workload=replace(plan.workload, tables=narrow))
    found = placed_parts(replace(run, rows={"name": "split", "upper": "truncated"}), half, "cuda")
    for part in (NarrowTables(first.name), NarrowTables(second.name, "fp16"), GPU):
        assert part in found
    assert "rows: split" in labels(found)
    assert not [part for part in placed_parts(run, plan, "cpu") if isinstance(part, NarrowTables)]
    assert "rows: split" in labels(data_parts(replace(run, rows="split")))
    layers = replace(run, optimizers=replace(run.optimizers, dense=DenseOptimizer(name="master")))
    assert "optimizers.dense.name: master" in labels(placed_parts(layers, plan, "cpu"))
    ahead = replace(run, pipeline={"name": "sparse_dist"}, data=replace(run.data, deduplicate=(("a",),)))
    assert AHEAD_OF_BATCHES in data_parts(ahead)


@needs_systems("shampoo", "halves", "second_order")
def test_layers_are_found_in_a_run() -> None:
    run = Run(data=RunData(train="x"), output="out")

    def parts(name: str, shapes: list[tuple[int, ...]], **arguments: object) -> list[str]:
        dense = DenseOptimizer(name=name, arguments=dict(arguments))
        return labels(layer_parts(replace(run, optimizers=RunOptimizers(dense=dense)), shapes))

    shampoo, split = "optimizers.dense.name: shampoo", "optimizers.dense.name: split"
    assert parts("adam", [(3, 2), (3,)]) == []
    assert parts("shampoo", [(3, 2), (3,)]) == [shampoo]
    assert parts("shampoo", [(3,)]) == [shampoo, NO_LAYERS.label]
    assert parts("split", [(3, 2)], optimizer="shampoo") == [shampoo, split]
    narrow = replace(run, pipeline={"name": "dance"}, model=RunModel(precision="bf16"))
    assert labels(layer_parts(narrow, [(3, 2)])) == ["pipeline: dance"]
    found = placed_parts(narrow, placed("row_wise"), "cpu")
    assert "pipeline: dance" in labels(found)
    assert BF16_PRODUCTS in found
