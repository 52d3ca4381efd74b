"""Models of histories: samples do not see each other, nor events later ones; what they cannot read is refused."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.errors import CorruptFile, UsageError
from recsmith.training import RunModel, RunTable
from recsmith.training.models import SEQUENCE_MODELS, sequence_settings
from recsmith.training.models.work import layer_work

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
ITEMS, DIM = 40, 16
SINGLE = {"target": ITEMS, "when": None, "user": 9}
SCHEMA = DataSchema(
    features=(
        DataFeature(name="history", num_embeddings=ITEMS),
        DataFeature(name="actions", num_embeddings=5),
        DataFeature(name="times"),
        *(DataFeature(name=name, num_embeddings=rows, single=True) for name, rows in SINGLE.items()),
    ),
    dense=(),
    labels=("liked",),
)
TIMED = {"times": "times", "target_time": "when"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "hstu": ("hstu", {}),
    "hstu with all": ("hstu", {**TIMED, "actions": "actions", "context": ["user"], "longest": 5}),
    "hstu dot": ("hstu", {**TIMED, "score": "dot", "longest": 5}),
    "sasrec": ("sasrec", {"actions": "actions", "heads": 2, "longest": 5}),
    "din": ("din", {"actions": "actions", "longest": 5}),
}


def samples(count: int = 9, seed: int = 0) -> Batch:
    """Some with histories longer than models take, one with none."""
    drawn = np.random.default_rng(seed)
    lengths = drawn.integers(0, 9, count).astype(np.int32)
    lengths[2] = 0
    total, ones = int(lengths.sum()), np.ones(count, np.int32)
    steps = drawn.integers(0, 10**6, total)
    owner = np.repeat(np.arange(count), lengths)
    times = 10**9 + np.array([steps[: at + 1][owner[: at + 1] == owner[at]].sum() for at in range(total)], np.int64)
    bags = {
        "history": JaggedIds(values=drawn.integers(0, ITEMS, total), lengths=lengths),
        "actions": JaggedIds(values=drawn.integers(0, 5, total), lengths=lengths),
        "times": JaggedIds(values=times, lengths=lengths),
        "target": JaggedIds(values=drawn.integers(0, ITEMS, count), lengths=ones),
        "when": JaggedIds(values=2 * 10**9 + drawn.integers(0, 10**6, count), lengths=ones),
        "user": JaggedIds(values=drawn.integers(0, 9, count), lengths=ones),
    }
    labels = drawn.integers(0, 2, (count, 1)).astype(np.float32)
    return Batch(
        dense=np.zeros((count, 0), np.float32), ids=bags, labels=labels, label_names=("liked",),
        sample_ids=np.arange(count),
    )  # fmt: skip


def a_task(kind: str, schema: DataSchema = SCHEMA, **more: Any) -> Any:
    from recsmith.training.job.models import build_task

    name, arguments = KINDS[kind]
    model = RunModel(name=name, arguments={**arguments, **more}, embedding_dim=DIM)
    return build_task(model, schema, 0, tables_on="cpu").eval()


def logits_of(task: Any, batch: Batch, rows: int | None = None) -> Any:
    from recsmith.training.batches import as_tensors
    from recsmith.training.tables.plain import features_of

    return task(as_tensors(batch, features_of(task), rows=rows))[1][1]


def changed(batch: Batch, name: str, sample: int, event: int, value: int) -> Batch:
    bags = {each: JaggedIds(values=ids.values.copy(), lengths=ids.lengths) for each, ids in batch.ids.items()}
    starts = np.cumsum(batch.ids[name].lengths) - batch.ids[name].lengths
    bags[name].values[starts[sample] + event] = value
    return Batch(
        dense=batch.dense, ids=bags, labels=batch.labels, label_names=batch.label_names, sample_ids=batch.sample_ids
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_has_the_logit_that_it_has_alone(kind: str):
    import torch

    task, batch = a_task(kind), samples()
    alone = [logits_of(task, batch.take(np.array([at]))) for at in range(len(batch))]
    together = logits_of(task, batch)
    assert bool(torch.isfinite(together).all())
    assert len(set(together[:, 0].tolist())) > 5
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_learns_and_batches_without_events_have_zero_gradients(kind: str):
    import torch

    from recsmith.training.batches import as_tensors
    from recsmith.training.tables.plain import features_of

    task, batch = a_task(kind), samples()
    task(as_tensors(batch, features_of(task)))[0].backward()
    assert all(each.grad is not None and bool(torch.isfinite(each.grad).all()) for each in task.parameters())
    unlearned = [name for name, each in task.named_parameters() if each.grad is not None and not each.grad.any()]
    assert unlearned == []
    empty = a_task(kind)
    loss, _ = empty(as_tensors(batch.take(np.zeros(0, np.int64)), features_of(empty), rows=3))
    loss.backward()
    assert all(each.grad is not None and not each.grad.any() for each in empty.parameters())


@pytest.mark.parametrize("kind", ["hstu with all", "hstu dot", "sasrec", "din"])
def test_older_events_than_the_longest_history_change_nothing(kind: str):
    import torch

    task, batch = a_task(kind), samples()
    sample = int(batch.ids["history"].lengths.argmax())
    assert batch.ids["history"].lengths[sample] > 5
    before = logits_of(task, batch)
    oldest = logits_of(task, changed(batch, "history", sample, 0, 7))
    torch.testing.assert_close(oldest, before, rtol=0, atol=0)
    newest = logits_of(task, changed(batch, "history", sample, int(batch.ids["history"].lengths[sample]) - 1, 7))
    assert not torch.allclose(newest[sample], before[sample], rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", ["hstu", "sasrec"])
def test_events_do_not_see_later_ones(kind: str):
    import torch

    from recsmith.training.models.jagged import layout

    body = a_task(kind).model.body
    places = layout([torch.tensor([4, 6])])
    x = torch.randn(10, DIM)
    later = x.clone()
    later[3] = torch.randn(DIM)  # the last of the first sample
    later[8] = torch.randn(DIM)  # the fifth of the second
    more = ([None] * len(places.groups),) if kind == "hstu" else ()
    one, other = (body.blocks[0](each, places.groups, *more) for each in (x, later))
    seen = (one != other).any(1)
    assert seen.tolist() == [False] * 3 + [True] + [False] * 4 + [True, True]


def test_hstu_is_the_published_formula_for_one_history():
    """Zhai et al. 2024, equations 1 to 3, and the bias of place and of time, written out position by position."""
    import torch
    from torch.nn.functional import layer_norm, silu

    from recsmith.training.models.jagged import SameLength

    block = a_task("hstu with all").model.body.blocks[0]
    n, heads, keys, values = 4, 2, 16, 16
    x = torch.randn(n, DIM)
    bucket = torch.randint(0, 129, (1, n, n))
    u, v, q, k = silu(layer_norm(x, (DIM,), eps=1e-6) @ block.uvqk).split([32, 32, 32, 32], 1)
    seen = torch.zeros(n, heads * values)
    for head in range(heads):
        for i in range(n):
            for j in range(i + 1):
                score = q[i, head * keys :][:keys] @ k[j, head * keys :][:keys]
                score = silu(score + block.by_place[i - j] + block.by_time[bucket[0, i, j]]) / block.positions
                seen[i, head * values :][:values] += score * v[j, head * values :][:values]
    expected = (u * layer_norm(seen, (heads * values,), eps=1e-6)) @ block.out.weight.T + block.out.bias + x
    torch.testing.assert_close(block(x, [SameLength(0, 1, n)], [bucket]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"name": "hstu", "arguments": {"depth": 3}}, "model.arguments.depth"),
        ({"name": "hstu", "arguments": {"blocks": 0}}, "model.arguments.blocks is 0"),
        ({"name": "hstu", "arguments": {"longest": 10**9}}, "model.arguments.longest is 1,000,000,000"),
        ({"name": "hstu", "arguments": {"dropout": 1.0}}, "model.arguments.dropout is 1.0"),
        ({"name": "hstu", "arguments": {"history": ["a", "b"]}}, "names 2 features and model.arguments.target 1"),
        ({"name": "sasrec", "arguments": {"history": ["target"]}}, "names feature 'target' twice"),
        ({"name": "hstu", "arguments": {"target_time": "when"}}, "target_time is given and times is not"),
        ({"name": "hstu", "arguments": {"times": "clock"}}, "feature 'clock', and the data has none of that name"),
        ({"name": "din", "arguments": {"history": ["histroy"]}}, "did you mean 'history'"),
        ({"name": "sasrec", "arguments": {"heads": 3}}, "heads is 3, and tables have 16 columns"),
        (
            {"name": "hstu", "tables": (RunTable(name="target", num_embeddings=40, features=("history", "target")),)},
            "hstu reads the rows of feature 'history', and table 'target' pools it",
        ),
        (
            {"name": "hstu", "tables": tuple(
                RunTable(name=name, num_embeddings=40, pooling="none") for name in ("history", "target"))},
            "looked up in 'history' and 'target', and hstu scores a target by the rows of its history",
        ),
        (
            {"name": "hstu", "tables": (
                RunTable(name="target", num_embeddings=40, features=("history", "target"), pooling="none"),
                RunTable(name="user", num_embeddings=9))},
            "table 'user' is pooled, and hstu reads sequences alone",
        ),
    ],
)  # fmt: skip
def test_what_a_model_cannot_read_is_refused(model: dict[str, Any], words: str):
    from recsmith.training.job.models import build_task

    with pytest.raises((UsageError, CorruptFile), match=words) as caught:
        build_task(RunModel(embedding_dim=DIM, **model), SCHEMA, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arguments", "labels", "words"),
    [("sasrec", {}, 2, "one logit, and the data has 2 labels"), ("hstu", {"score": "dot"}, 3, "the data has 3 labels")],
)
def test_scores_by_a_product_have_one_label(name: str, arguments: dict[str, Any], labels: int, words: str):
    from recsmith.training.job.models import build_task

    schema = DataSchema(features=SCHEMA.features, dense=(), labels=tuple(f"l{each}" for each in range(labels)))
    with pytest.raises(UsageError, match=words):
        build_task(RunModel(name=name, arguments=arguments, embedding_dim=DIM), schema, 0)


def test_dense_columns_are_read_by_din_alone():
    from recsmith.training.job.models import build_task

    schema = DataSchema(features=SCHEMA.features, dense=("price",), labels=("liked",))
    for name in ("hstu", "sasrec"):
        with pytest.raises(UsageError, match=rf"{name} reads no dense columns, and the data has 1 \(price\)"):
            build_task(RunModel(name=name, embedding_dim=DIM), schema, 0)
    build_task(RunModel(name="din", embedding_dim=DIM), schema, 0)


def test_hstu_has_a_head_for_several_labels():
    schema = DataSchema(features=SCHEMA.features, dense=(), labels=("liked", "finished", "shared"))
    batch = samples()
    more = Batch(
        dense=batch.dense, ids=batch.ids, labels=np.zeros((len(batch), 3), np.float32), label_names=schema.labels,
        sample_ids=batch.sample_ids,
    )  # fmt: skip
    assert logits_of(a_task("hstu", schema), more).shape == (len(batch), 3)


def test_features_of_one_event_must_be_as_many():
    batch = samples()
    ids = dict(batch.ids)
    ids["actions"] = ids["actions"].take(np.arange(len(batch))[::-1])
    odd = Batch(
        dense=batch.dense, ids=ids, labels=batch.labels, label_names=batch.label_names, sample_ids=batch.sample_ids
    )
    with pytest.raises(UsageError, match=r"events of feature 'history' and \d of 'actions'"):
        logits_of(a_task("sasrec"), odd)


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_layers_is_that_of_their_matrices(kind: str):
    """One row of each matrix is what the model's own parameters say."""
    from recsmith.training.job.sharded import dense_shapes

    name, arguments = KINDS[kind]
    settings = sequence_settings(name, arguments)
    assert settings is not None
    task = a_task(kind)
    others = 9 * 0 + DIM + 1 if name == "din" else 0  # the user's table, and the column of ones
    work = layer_work(settings, DIM, lengths=np.array([3]), others=others, labels=1)
    places = {(work.positions, DIM), (settings.longest, DIM)}
    found = sorted(sorted(shape) for shape in dense_shapes(task) if len(shape) == 2)
    found = [shape for shape in found if tuple(shape) not in {tuple(sorted(each)) for each in places}]
    if name == "hstu":
        found = [shape for shape in found if shape != sorted((task.model.body.positions, DIM))]
    assert sorted(sorted((outward, inward)) for _, outward, inward in work.products) == found
    assert set(SEQUENCE_MODELS) == {"hstu", "sasrec", "din"}


def test_hstu_says_what_its_authors_code_says():
    """The figures of benchmarks/hstu_reference.py -o: outputs of the authors' code with these weights and histories."""
    import json
    import sys

    import torch

    sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
    try:
        reference: Any = import_module("hstu_reference")
    finally:
        sys.path.pop(0)
    found = json.loads(Path(__file__).with_name("hstu_reference.json").read_text())
    shape = tuple(found["shape"])
    body, table = reference.seeded(shape, found["seed"])
    with torch.no_grad():
        outputs = reference.ours(body, table, reference.histories(found["samples"], shape[-1], found["seed"]))
    torch.testing.assert_close(outputs, torch.tensor(found["outputs"]), rtol=0, atol=1e-5)


def test_a_softmax_is_told_by_the_log_odds_of_its_first_candidate():
    import torch

    from recsmith.training.batches import as_tensors
    from recsmith.training.job.losses import Loss, SoftmaxLoss
    from recsmith.training.tables.features import Features

    batch = Batch(
        dense=np.zeros((3, 0), np.float32),
        ids={"a": JaggedIds(values=np.zeros(3, np.int64), lengths=np.ones(3, np.int32))},
        labels=np.ones((3, 1), np.float32), label_names=("next",), sample_ids=np.arange(3),
    )  # fmt: skip
    loss, given = SoftmaxLoss(), as_tensors(batch, Features(("a",)))
    logits = torch.tensor([[2.0, 1.0, -1.0], [0.0, 3.0, 0.5], [90.0, 0.0, 0.0]], requires_grad=True)
    found, (_, odds, labels, _) = loss(logits, given)
    expected = torch.nn.functional.cross_entropy(logits, torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(found, expected)
    told = torch.nn.functional.binary_cross_entropy_with_logits(odds, labels)
    torch.testing.assert_close(told, expected.detach(), rtol=1e-5, atol=1e-6)
    found.backward()
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())
    with pytest.raises(UsageError, match=r"model\.loss is softmax, and samples have one candidate; give data\.train"):
        loss(logits[:, :1], given)
    with pytest.raises(UsageError, match="logits of shape"):
        loss(logits[:, :2].reshape(-1)[:4], given)
    torch.testing.assert_close(loss.eval()(logits[:, :1], given)[0], Loss()(logits[:, :1], given)[0])
    assert torch.equal(loss.eval()(logits[:, :1], given)[1][1], logits[:, :1])


def test_samples_have_as_many_candidates_and_models_that_score_one_are_refused():
    import torch

    from recsmith.training.models.jagged import products

    users, rows = torch.eye(2), torch.arange(6.0).view(3, 2)
    with pytest.raises(UsageError, match=r"a sample has 1 ids of feature 'target' and another 2; give all samples as"):
        products(users, (rows, torch.tensor([2, 1])), "target")
    assert products(users, (rows[:2], torch.tensor([0, 2])), "target").tolist() == [[0.0, 0.0], [1.0, 3.0]]
    for name, arguments in (("dlrm", None), ("din", None), ("hstu", {"score": "target"})):
        with pytest.raises(
            UsageError, match=f"model.loss is softmax, which compares candidates of a sample, and {name}"
        ):
            RunModel(name=name, arguments=arguments, loss="softmax")


def test_a_dry_run_refuses_a_softmax_over_one_candidate(tmp_path: Path):
    from training.models.test_model_jobs import ARGUMENTS, DATA, a_run

    from recsmith.training import RunData
    from recsmith.training.launch.dry_run import described

    model = RunModel(name="sasrec", embedding_dim=8, arguments=ARGUMENTS["sasrec"], loss="softmax")
    run = a_run(tmp_path / "out", data=RunData(train=DATA, global_batch_size=8), model=model, ranks=1)
    with pytest.raises(UsageError, match=r"samples have one candidate; give data\.train `candidates: 32`"):
        described(run)
