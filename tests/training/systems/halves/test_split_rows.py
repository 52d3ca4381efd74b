"""Tables in halves train as fp32 tables whose lookups are rounded, to the bit, and read half the bytes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.two_table_jobs import ROWS, a_plan, a_run

from recsmith.errors import UsageError

STEPS = [100, pytest.param(1000, marks=pytest.mark.soak)]
RATE, EPS = 0.05, 1e-8


def some_tables(optimizer: str, upper: str, *, lower: bool = True, pooling: str = "SUM", last: int = 4) -> Any:
    """Two tables in halves, the first of which two features read; and fp32 copies of their weights."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode

    from recsmith.training.systems.halves.rows import SplitTables

    kinds = {"sgd": EmbOptimType.EXACT_SGD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}
    made = SplitTables(
        rows=[300, 100], columns=[8, last], feature_table_map=[0, 0, 1], upper=upper, lower=lower,
        optimizer=kinds[optimizer], learning_rate=RATE, eps=EPS, device=torch.device("cpu"),
        pooling_mode=PoolingMode[pooling],
    )  # fmt: skip
    starts = [torch.randn(300, 8) * 0.1, torch.randn(100, last) * 0.1]
    for weight, start in zip(made.split_embedding_weights(), starts, strict=True):
        weight.copy_(start)
    return made, starts


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("upper", ["nearest", "truncated"])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("steps", STEPS)
def test_updates_are_those_of_torch_in_fp32_to_the_bit(steps: int, optimizer: str, upper: str) -> None:
    """Against nn.functional.embedding_bag with torch.optim.SGD and torchrec.optim.RowWiseAdagrad on fp32 tables.

    Gradients of equal ids are summed in the order of ids, where embedding_bag has that of a sort that is not stable.
    """
    import torch
    from torchrec.optim import RowWiseAdagrad

    from recsmith.training.systems.halves.bfloat16 import split

    torch.manual_seed(0)
    tables, starts = some_tables(optimizer, upper)
    plain: list[Any] = [torch.nn.Parameter(each.clone()) for each in starts]
    other: Any = torch.optim.SGD(plain, RATE) if optimizer == "sgd" else RowWiseAdagrad(plain, lr=RATE, eps=EPS)
    lengths = torch.cat([torch.full((16,), length) for length in (3, 2, 1)])
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    for _ in range(steps):
        ids = torch.cat([torch.randint(0, 300, (80,)), torch.randint(0, 100, (16,))])
        out, wanted = tables(ids, ends), torch.randn(16, 20)
        looked = [split(each.detach().clone(), to_nearest=upper == "nearest")[0].float() for each in plain]
        for part, table, bags in ((slice(0, 80), 0, slice(0, 33)), (slice(80, 96), 1, slice(32, 49))):
            at = ends[bags] - ends[bags][0]
            pooled = torch.nn.functional.embedding_bag(
                ids[part], looked[table], at, mode="sum", include_last_offset=True
            )
            found = out[:, :16].unflatten(1, (2, 8)).transpose(0, 1).flatten(0, 1) if table == 0 else out[:, 16:]
            assert torch.equal(pooled, found.detach())
        out.backward(wanted)
        other.zero_grad()
        first = torch.cat([wanted[:, :8], wanted[:, 8:16]])
        for table, gradient, part, bags in ((0, first, slice(0, 80), slice(0, 33)),
                                            (1, wanted[:, 16:], slice(80, 96), slice(32, 49))):  # fmt: skip
            of_bag = torch.arange(len(gradient)).repeat_interleave(ends[bags].diff())
            plain[table].grad = torch.zeros_like(plain[table]).index_add_(0, ids[part], gradient[of_bag])
        other.step()
    for found, expected in zip(tables.split_embedding_weights(), plain, strict=True):
        assert torch.isfinite(found).all()
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_rows_of_single_ids_are_those_of_bags_of_one_to_the_bit(optimizer: str) -> None:
    """Of a table that two features read, whose bags have 0 to 3 ids, beside bags of one id each."""
    import torch

    torch.manual_seed(0)
    (single, starts), (bags, _) = (some_tables(optimizer, "nearest", pooling=each, last=8) for each in ("NONE", "SUM"))
    for weight, start in zip(bags.split_embedding_weights(), starts, strict=True):
        weight.copy_(start)
    for _ in range(20):
        lengths = torch.cat([torch.randint(0, 4, (8,)), torch.randint(0, 4, (8,)), torch.zeros(8, dtype=torch.int64)])
        ids, ends = torch.randint(0, 300, (int(lengths.sum()),)), lengths.cumsum(0)
        wanted = torch.randn(len(ids), 8)
        found = single(ids, torch.cat([torch.zeros(1, dtype=torch.int64), ends]))
        ones = torch.arange(len(ids) + 1)
        pooled = bags(ids, torch.cat([ones, ones[-1:].repeat(2 * len(ids))]))[:, :8]  # all are of the first feature
        assert torch.equal(found.detach(), pooled.detach())
        found.backward(wanted)
        pooled.backward(wanted)
    for mine, other in zip(single.split_embedding_weights(), bags.split_embedding_weights(), strict=True):
        assert torch.isfinite(mine).all()
        assert torch.equal(mine, other)
    assert not torch.equal(single.split_embedding_weights()[0], starts[0])


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_updates_are_within_a_millionth_of_fbgemm(optimizer: str) -> None:
    import torch
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.manual_seed(0)
    tables, starts = some_tables(optimizer, "nearest")
    fused = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, columns, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows, columns in ((300, 8), (100, 4))],
        feature_table_map=[0, 0, 1], optimizer=tables.optimizer, learning_rate=RATE, eps=EPS,
        device=torch.device("cpu"),
    )  # fmt: skip
    for weight, start in zip(fused.split_embedding_weights(), starts, strict=True):
        weight.copy_(start)
    for _ in range(50):
        ids, ends = torch.randint(0, 100, (96,)), torch.arange(0, 97, 2)
        gradient = torch.randn(16, 20)
        tables(ids, ends).backward(gradient)
        fused(ids, ends).backward(gradient)
    for found, expected in zip(tables.split_embedding_weights(), fused.split_embedding_weights(), strict=True):
        assert float((found - expected).abs().max()) <= 1e-6


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("mean", [False, True])
def test_weighted_and_mean_bags_are_those_of_fbgemm(mean: bool) -> None:
    import torch
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.manual_seed(0)
    tables, starts = some_tables("sgd", "truncated", pooling="MEAN" if mean else "SUM")
    fused = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, columns, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows, columns in ((300, 8), (100, 4))],
        feature_table_map=[0, 0, 1], pooling_mode=tables.pooling_mode, device=torch.device("cpu"),
    )  # fmt: skip
    for table, (weight, start) in enumerate(zip(fused.split_embedding_weights(), starts, strict=True)):
        start.view(torch.int32).bitwise_and_(-0x10000)  # a bf16 number, so that both look the same up
        weight.copy_(start)
        tables.split_embedding_weights()[table].copy_(start)
    ids, ends = torch.randint(0, 100, (90,)), torch.tensor([0, *[0, 5] * 8, *range(5, 85, 5), *[88] * 15, 90]).sort()[0]
    for factors in (None, torch.rand(90)):
        found, expected = tables(ids, ends, factors), fused(ids, ends, per_sample_weights=factors)
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("pooling", ["SUM", "MEAN", "NONE"])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_compiled_code_does_what_pytorch_s_operators_do_to_the_bit(optimizer: str, pooling: str) -> None:
    """With rows of 8 and of 140 columns, empty bags, ids that come often, weights of ids, and both roundings."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode

    from recsmith.training.systems.halves.pooling import kernels
    from recsmith.training.systems.halves.rows import SplitTables

    assert kernels() is not None, "make venv builds it"
    torch.manual_seed(0)
    kinds = {"sgd": EmbOptimType.EXACT_SGD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}
    compared = 0
    for upper, weighted in (("nearest", False), ("truncated", False), ("nearest", pooling == "SUM")):
        last = 8 if pooling == "NONE" else 140
        pair = [
            SplitTables(
                rows=[3000, 50], columns=[8, last], feature_table_map=[0, 0, 1], upper=upper, lower=True,
                optimizer=kinds[optimizer], learning_rate=RATE, eps=EPS, device=torch.device("cpu"),
                pooling_mode=PoolingMode[pooling],
            ) for _ in range(2)
        ]  # fmt: skip
        for weights in zip(*(each.split_embedding_weights() for each in pair), strict=True):
            start = torch.randn(weights[0].shape)
            for each in weights:
                each.copy_(start)
        pair[1].compiled = False
        for _ in range(30):
            lengths = torch.randint(0, 9, (3 * 16,))
            ends = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
            ids = (torch.rand(int(ends[-1])) ** 3 * 50).long()
            ids[: int(ends[32])] *= 59
            factors = torch.randn(len(ids)) if weighted else None
            outs = [each(ids, ends, factors) for each in pair]
            assert torch.isfinite(outs[0]).all()
            assert torch.equal(*(each.detach() for each in outs))
            gradient = torch.randn(outs[0].shape)
            for each in outs:
                each.backward(gradient)
            compared += 1
        for found, expected in zip(*(each.split_embedding_weights() for each in pair), strict=True):
            assert torch.isfinite(found).all()
            assert torch.equal(found, expected)
    assert compared == 90


@pytest.mark.usefixtures("torchrec")
def test_weights_of_ids_that_learn_get_their_gradient() -> None:
    import torch

    tables, _ = some_tables("sgd", "nearest")
    factors = torch.ones(96, requires_grad=True)
    tables(torch.randint(0, 100, (96,)), torch.arange(0, 97, 2), factors).sum().backward()
    assert factors.grad is not None
    assert factors.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ids": [0, 7]}, "an id that is no row"),
        ({"ids": [0, -1]}, "an id that is no row"),
        ({"ends": [0, 1]}, "bags that do not hold all ids"),
        ({"ends": [0, 3, 2], "samples": 2}, "bags that end before they begin"),
        ({"samples": 2}, "sizes that do not agree"),
        ({"columns": 3}, "sizes that do not agree"),
    ],
)
def test_arrays_that_do_not_agree_are_refused_by_compiled_code(change: dict[str, Any], words: str) -> None:
    import numpy as np

    from recsmith._compiled import compiled
    from recsmith.training.systems.halves import COMPILED

    given: dict[str, Any] = {"ids": [0, 1], "ends": [0, 2], "samples": 1, "columns": 2, **change}
    halves, out = np.zeros((5, 4), np.int16), np.zeros((given["samples"], 2), np.float32)
    if "ends" not in change and given["samples"] == 2:
        out = out[:1].copy()
    numbers = np.array([given["columns"], given["samples"], 1, 0, 2], np.int64)
    arrays = [np.array(given[name], np.int64) for name in ("ids", "ends")]
    with pytest.raises(ValueError, match=words):
        compiled(COMPILED).pooled((halves, *arrays, np.zeros(0, np.float32), out, numbers))


@pytest.mark.usefixtures("torchrec")
def test_lookups_read_two_bytes_of_each_weight_and_nothing_is_kept_beside() -> None:
    import torch

    tables, _ = some_tables("rowwise_adagrad", "nearest")
    ids = torch.cat([torch.randint(0, 300, (64,)), torch.randint(0, 100, (32,))])
    tables(ids, torch.arange(0, 97, 2))
    with torch.no_grad():
        tables(ids, torch.arange(0, 97, 2))  # of scores, which are not counted
    assert tables.read_bytes == 2 * (8 * 64 + 4 * len(ids[64:]))
    held = {each.data_ptr(): each.nbytes for each in (*tables.parameters(), *tables.buffers()) if each.numel() > 1000}
    assert sum(held.values()) == 4 * (300 * 8 + 100 * 4)


@pytest.mark.usefixtures("torchrec")
def test_weights_can_be_written_between_steps_and_a_bag_may_be_empty() -> None:
    import torch

    tables, _ = some_tables("sgd", "nearest")
    out = tables(torch.zeros(0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64))
    assert out.shape == (1, 20)
    assert not out.detach().any()
    out.sum().backward()
    tables.split_embedding_weights()[1].fill_(3.0)
    found = tables(torch.tensor([7]), torch.tensor([0, 0, 0, 1]))
    assert found[0, 16:].tolist() == [3.0] * 4


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("upper", ["nearest", "truncated"])
def test_a_gradient_that_is_nan_is_seen_in_the_next_lookup(upper: str) -> None:
    """So that the guard of losses says it at the next step, as of tables in fp32."""
    import torch

    tables, _ = some_tables("rowwise_adagrad", upper)
    ids, ends = torch.tensor([1, 2, 3]), torch.tensor([0, 1, 2, 3])
    tables(ids, ends).backward(torch.full((1, 20), torch.nan))
    assert tables(ids, ends).isnan().all()


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("upper", ["nearest", "truncated", "stochastic"])
def test_without_lower_halves_small_updates_are_lost_unless_they_are_rounded_by_chance(upper: str) -> None:
    import torch

    torch.manual_seed(0)
    tables, _ = some_tables("sgd", upper, lower=False)
    tables.split_embedding_weights()[1].fill_(1.0)
    for _ in range(50):
        tables(torch.tensor([7]), torch.tensor([0, 0, 0, 1])).backward(torch.full((1, 20), -0.01))  # 0.0005 a step
    moved = tables.split_embedding_weights()[1][7]
    assert (moved != 1.0).any() == (upper == "stochastic")
    assert torch.equal(moved, moved.to(torch.bfloat16).float())


@pytest.mark.usefixtures("torchrec")
def test_a_job_in_halves_resumes_to_the_bit_and_leaves_fp32(tmp_path: Path) -> None:
    """Tables and dense layers, on two ranks; a checkpoint of it is not taken for one in fp32."""
    import torch

    from recsmith.errors import CorruptFile
    from recsmith.training import DenseOptimizer, load_model, train

    whole = a_run(tmp_path / "whole", ranks=2, rows="split")
    optimizers = replace(whole.optimizers, dense=DenseOptimizer(name="split"))
    whole = replace(whole, model=replace(whole.model, precision="bf16"), optimizers=optimizers)
    train(whole)
    parts = replace(whole, output=str(tmp_path / "parts"))
    train(replace(parts, steps=7))
    assert train(parts)["step"] == 12
    expected, found = (load_model(Path(run.output) / "model").task.state_dict() for run in (whole, parts))
    assert len(found) > len(ROWS)
    for name, each in found.items():
        assert each.dtype == torch.float32
        assert each.isfinite().all()
        assert (each != each.to(torch.bfloat16)).any(), name
        assert torch.equal(each, expected[name]), name
    with pytest.raises(CorruptFile, match=r"optimizers.dense is split there and adam here"):
        train(replace(parts, optimizers=replace(optimizers, dense=DenseOptimizer()), steps=13))


def test_what_it_has_not_is_refused_before_the_start(tmp_path: Path) -> None:
    from recsmith.plans import load_plan
    from recsmith.training.run.refusals import check_together, placed_parts

    run = a_run(tmp_path, optimizer="adagrad", rows="split")
    with pytest.raises(UsageError, match=r"rows: split has no form of adagrad; use sgd or rowwise_adagrad"):
        check_together(placed_parts(run, load_plan(a_plan(tmp_path, 1, "adagrad")), "cpu"))


def test_plans_that_are_made_for_it_copy_no_table(tmp_path: Path) -> None:
    from recsmith.training.job.plan_rules import plan_limits

    run = a_run(tmp_path)
    for rows, copied in (("device", True), ("split", False)):
        rules = plan_limits(replace(run, rows=rows), None, sequences=(), device="cpu").rules
        assert all(rule.sharding_types is None or "data_parallel" in rule.sharding_types for rule in rules) == copied


@pytest.mark.usefixtures("torchrec")
def test_a_rounding_that_it_has_not_is_refused() -> None:
    import torch

    from recsmith.training.systems.halves.rows import SplitRows

    config: Any = None
    with pytest.raises(UsageError, match=r"rows.upper is stochastic, which lower: true has not; nearest or truncated"):
        SplitRows.kernel(config, True, torch.device("cpu"), upper="stochastic")
