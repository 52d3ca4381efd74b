"""Shampoo is the published one to the bit that counts, on any number of ranks, and goes on where it was saved."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from support.systems import is_here, needs_systems
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torchrec.optim.keyed import KeyedOptimizerWrapper
from training.test_jobs import a_run, from_step, losses

from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.training import (
    DenseOptimizer,
    Run,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    run_from_raw,
    run_to_raw,
    train,
)
from recsmith.training.launch.launching import dry_run
from recsmith.training.optimizers.dense import dense_optimizer
from recsmith.training.systems.shampoo.optimizer import ShampooOptimizer, inverse_fourth_root

pytestmark = [
    pytest.mark.usefixtures("torchrec"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),  # checkpoints of one process
]
OFTEN: dict[str, Any] = {"precondition_frequency": 4, "statistics_frequency": 2}
SHAPES = ((12, 7), (12,), (5, 12), (5,), (1, 5), (3, 2, 4))


def layers(kind: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    """Parameters of some shapes, the same each time."""
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(*shape, dtype=torch.float64).mul(0.3).to(kind)) for shape in SHAPES]


def step(made: Any, parameters: list[torch.nn.Parameter], number: int) -> None:
    """A step with the gradients of its number."""
    torch.manual_seed(100 + number)
    for each in parameters:
        each.grad = torch.randn(each.shape, dtype=torch.float64).mul(0.1).to(each.dtype)
    made.step()


def test_twenty_steps_are_those_of_pytorch_optimizer() -> None:
    """Blocks of ours are parameters of the oracle, which grafts whole parameters, as the paper grafts blocks."""
    oracle = pytest.importorskip("pytorch_optimizer", reason="needs pytorch_optimizer, the oracle")
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting

    mine = [each for each in layers(torch.float64) if each.dim() < 3]
    own = ShampooOptimizer(
        mine, 0.05, max_preconditioner_dim=6, grafting="adagrad", decay=0.97, eps=1e-9, matrix_eps=1e-7, **OFTEN
    )
    theirs = [
        torch.nn.Parameter(part(mine[block.parameter], block).detach().clone().reshape(block.shape if block.factored
                           else -1)) for block in own.blocks
    ]  # fmt: skip
    other = oracle.ScalableShampoo(
        theirs, lr=0.05, betas=(0.0, 0.97), start_preconditioning_step=4, preconditioning_compute_steps=4,
        statistics_compute_steps=2, graft_type=LayerWiseGrafting.ADAGRAD, nesterov=False, diagonal_eps=1e-9,
        matrix_eps=1e-7, use_svd=True, shape_interpretation=False,
    )  # fmt: skip
    moved = 0.0
    for number in range(20):
        step(own, mine, number)
        for copy, block in zip(theirs, own.blocks, strict=True):
            copy.grad = part(mine[block.parameter].grad, block).reshape(copy.shape).clone()
        other.step()
        for copy, block in zip(theirs, own.blocks, strict=True):
            here = part(mine[block.parameter], block).detach().reshape(copy.shape)
            assert torch.allclose(here, copy, rtol=0, atol=1e-5)
            moved = max(moved, float(here.abs().max()))
    assert moved > 0.1


def part(tensor: Any, block: Any) -> Any:
    """A block of a tensor."""
    whole = tensor.view(tensor.shape[0], -1) if block.factored else tensor.view(1, -1)
    return whole[slice(*block.rows), slice(*block.columns)]


def test_grafted_from_adam_it_is_the_paper_s_in_float64() -> None:
    """Written anew with NumPy, of one matrix: roots by a singular value decomposition, steps by the formulas."""
    torch.manual_seed(1)
    layer = torch.nn.Parameter(torch.randn(6, 4, dtype=torch.float64))
    own = ShampooOptimizer([layer], 0.01, precondition_frequency=3, statistics_frequency=1, matrix_eps=1e-9)
    weights, left, right = layer.detach().numpy().copy(), 1e-9 * np.eye(6), 1e-9 * np.eye(4)
    mean, second, roots = np.zeros((6, 4)), np.zeros((6, 4)), (np.eye(6), np.eye(4))
    for number in range(1, 13):
        step(own, [layer], number)
        assert layer.grad is not None
        gradient = layer.grad.numpy()
        mean, second = 0.9 * mean + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        left, right = (0.999 * kept + 0.001 * new for kept, new in
                       ((left, gradient @ gradient.T), (right, gradient.T @ gradient)))  # fmt: skip
        if number % 3 == 0:
            parts = [np.linalg.svd(each) for each in (left, right)]
            roots = tuple(u @ np.diag(s**-0.25) @ vh for u, s, vh in parts)
        followed = mean / (1 - 0.9**number)
        adam = followed / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
        turned = roots[0] @ followed @ roots[1]
        way = turned * np.linalg.norm(adam) / np.linalg.norm(turned) if number >= 3 else adam
        weights -= 0.01 * way
        assert np.allclose(layer.detach().numpy(), weights, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_before_the_first_roots_it_is_the_grafted_method(name: str) -> None:
    mine, plain = layers(), layers()
    own = ShampooOptimizer(mine, 0.01, grafting=name, eps=1e-8)
    other = torch.optim.Adam(plain, lr=0.01) if name == "adam" else torch.optim.Adagrad(plain, lr=0.01, eps=1e-8)
    for number in range(10):
        step(own, mine, number)
        step(other, plain, number)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(mine, plain, strict=True))


def wrapped(parameters: list[torch.nn.Parameter], **settings: Any) -> KeyedOptimizerWrapper:
    """As a job has it."""
    named = {f"layer{i}": each for i, each in enumerate(parameters)}
    return KeyedOptimizerWrapper(named, lambda ps: ShampooOptimizer(ps, 0.01, **{**OFTEN, **settings}))


def on_rank(folder: str) -> dict[str, Any]:
    """Eleven steps, saved after six; then the last five again from what was saved."""
    made = layers()
    own = wrapped(made, max_preconditioner_dim=5)
    for number in range(6):
        step(own, made, number)
    state: Any = own.state_dict()
    save({"weights": dict(own.params), **state}, checkpoint_id=f"{folder}/saved")
    kept = sum(each.nbytes for values in state["state"].values() for each in values.values())
    for number in range(6, 11):
        step(own, made, number)
    return {"through": [each.tolist() for each in made], "again": resumed(f"{folder}/saved"), "kept": kept}


def resumed(folder: str) -> list[Any]:
    """Weights after five steps from a checkpoint."""
    again = layers()
    own = wrapped(again, max_preconditioner_dim=5)
    own.init_state()
    state: Any = {"weights": dict(own.params), **own.state_dict()}
    load(state, checkpoint_id=folder)
    own.load_state_dict(state)
    for number in range(6, 11):
        step(own, again, number)
    return [each.tolist() for each in again]


def test_two_ranks_share_the_state_and_one_goes_on_from_it(tmp_path: Path) -> None:
    ranks = launch("training.systems.shampoo.test_shampoo:on_rank", {"folder": str(tmp_path)}, ranks=2)
    assert ranks[0]["through"] == ranks[1]["through"] == ranks[0]["again"] == ranks[1]["again"]
    alone = on_rank(str(tmp_path / "alone"))
    assert max(rank["kept"] for rank in ranks) <= 0.65 * alone["kept"]  # of a dozen small blocks
    for other in (alone["through"], resumed(str(tmp_path / "saved"))):
        for mine, theirs in zip(other, ranks[0]["through"], strict=True):
            assert np.allclose(mine, theirs, rtol=0, atol=1e-6)


def test_a_job_goes_on_bit_for_bit_and_on_one_rank_with_the_same_losses(tmp_path: Path) -> None:
    dense = DenseOptimizer(name="shampoo", learning_rate=0.01, arguments={**OFTEN, "max_preconditioner_dim": 6})
    run: Run = a_run(
        tmp_path / "out", ranks=2, model=RunModel(embedding_dim=8, bottom=(8,), top=(8,)),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05), dense=dense),
    )  # fmt: skip
    said: list[str] = []
    brought = train(run, on_progress=lambda message: said.append(message.get("note", "")))["brought"]
    assert re.fullmatch(
        "shampoo: its update took .* of a step; .* more than adam were predicted", brought["optimizers.dense"]
    )
    assert any(line.startswith("shampoo adds to a step ") for line in said)
    whole, again = losses(tmp_path / "out"), from_step(run, 8, tmp_path / "again")
    one = from_step(run, 8, tmp_path / "one")
    train(run, settings=(f"output={again}",))
    assert losses(again) == whole
    train(run, settings=(f"output={one}", "ranks=1"))
    assert losses(one) == pytest.approx(whole, rel=1e-6)


def test_a_class_whose_state_is_nested_by_block_is_named_and_goes_on(tmp_path: Path) -> None:
    """As that of Meta's package is; TorchRec reads `state`, so a class needs no `state_dict` of its own."""
    dense = DenseOptimizer(name="support.block_adagrad:BlockAdagrad", learning_rate=0.05, arguments={"rows": 3})

    def made(parameters: list[torch.nn.Parameter]) -> tuple[KeyedOptimizerWrapper, dict[str, Any]]:
        named = {f"layer{i}": each for i, each in enumerate(parameters)}
        own = KeyedOptimizerWrapper(named, lambda ps: dense_optimizer(ps, dense))
        own.init_state()
        return own, {"weights": named, **own.state_dict()}

    through, again = layers(), layers()
    own, state = made(through)
    for number in range(6):
        step(own, through, number)
    save(state, checkpoint_id=str(tmp_path))
    other, state = made(again)
    load(state, checkpoint_id=str(tmp_path))
    other.load_state_dict(state)
    for number in range(6, 11):
        step(own, through, number)
        step(other, again, number)
    assert all(torch.equal(a, b) for a, b in zip(through, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(through, layers(), strict=True))


def test_layers_without_gradients_rest() -> None:
    mine = layers()
    before = [each.detach().clone() for each in mine]
    own = ShampooOptimizer(mine, 0.01, **OFTEN)
    for number in range(8):
        torch.manual_seed(number)
        mine[0].grad = torch.randn(mine[0].shape)
        own.step()
    assert not torch.equal(mine[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(mine[1:], before[1:], strict=True))
    assert len({tuple(own.state[each]) for each in mine}) >= 1
    assert all(own.state[each] for each in mine)


def test_gradients_that_are_not_finite_leave_the_roots_and_are_left_to_the_guard_of_losses() -> None:
    (layer, *_) = layers()
    own = ShampooOptimizer([layer], 0.01, **OFTEN)
    for number in range(4):
        step(own, [layer], number)
    root = own.state[layer]["0_0.left_root"].clone()
    layer.grad = torch.full_like(layer, float("nan"))
    for _ in range(4):
        own.step()
    assert torch.equal(own.state[layer]["0_0.left_root"], root)
    assert torch.isnan(layer).all()
    assert inverse_fourth_root(torch.full((2, 2), float("inf"))) is None


def test_roots_of_what_has_no_full_rank_are_finite() -> None:
    wide = torch.randn(40, 3)
    root = inverse_fourth_root(wide @ wide.T)
    assert root is not None
    assert bool(torch.isfinite(root).all())
    assert bool(torch.isfinite(inverse_fourth_root(torch.zeros(3, 3)) @ torch.zeros(3)).all())  # type: ignore[operator]


def test_other_precisions_and_settings_are_refused() -> None:
    with pytest.raises(UsageError, match=r"given weights of bfloat16.*fp32"):
        ShampooOptimizer([torch.nn.Parameter(torch.zeros(3, 3, dtype=torch.bfloat16))], 0.01)
    with pytest.raises(UsageError, match="precondition_frequency is 0"):
        dense_optimizer(layers(), DenseOptimizer(name="shampoo", arguments={"precondition_frequency": 0}))
    with pytest.raises(UsageError, match=r"optimizers\.dense\.arguments\.blocksize is no setting; known: max_"):
        dense_optimizer(layers(), DenseOptimizer(name="shampoo", arguments={"blocksize": 3}))


@pytest.mark.parametrize("kind", ["dlrm", "dlrm_dcn"])
def test_layers_of_a_described_model_are_those_that_are_trained(kind: Any) -> None:
    from recsmith.data import DataSchema
    from recsmith.data.batch import DataFeature
    from recsmith.prediction.models import Model, layer_shapes
    from recsmith.training.job.models import build_task
    from recsmith.training.job.sharded import dense_shapes

    schema = DataSchema(
        features=tuple(DataFeature(name=name, num_embeddings=9) for name in "abc"), dense=("x", "y"), labels=("label",)
    )
    sizes: dict[str, Any] = {"bottom": (7,), "top": (6, 5), "cross_layers": 2, "cross_rank": 3}
    described = Model(kind=kind, dense_features=2, **sizes)
    task = build_task(RunModel(name=kind, embedding_dim=8, **sizes), schema, 0)
    assert sorted(layer_shapes(described, 3, 8)) == sorted(dense_shapes(task))


def test_predict_says_what_shampoo_adds(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from recsmith.cli.predict import predict_command

    (tmp_path / "mlp.yaml").write_text("schema: recsmith/model/1\nkind: mlp\nlayers: [64, 32]\n")
    done = CliRunner().invoke(predict_command, [str(tmp_path / "mlp.yaml"), "--optimizer", "shampoo"])
    assert done.exit_code == 0, done.output
    assert "shampoo adds to a step" in " ".join(done.stdout.split())
    (tmp_path / "mlp.yaml").write_text("schema: recsmith/model/1\nkind: transformer\n")
    refused = CliRunner().invoke(predict_command, [str(tmp_path / "mlp.yaml"), "--optimizer", "shampoo"])
    assert "the layers of a transformer are not listed" in str(refused.exception)


def test_auto_stays_with_the_optimizer_whose_state_a_checkpoint_has() -> None:
    from support.plans import two_tables

    from recsmith.prediction.job_step import JobStep
    from recsmith.training import RunData
    from recsmith.training.seams.predicting import OpenRun
    from recsmith.training.systems.shampoo import SYSTEM

    no_parts: Any = None  # which it does not ask for
    step = JobStep(trainer_s=1.0, reading_s=0.0, embeddings_s=0.0, layers_s=0.0, gradients_s=0.0, optimizer_s=0.1)

    def decided(run: Run, before: Run | None = None) -> tuple[Run, list[str]]:
        plan = two_tables()
        made = SYSTEM.decide(OpenRun(run, no_parts, plan, plan, [(2, 3), (2,)], 8, run.comms, step, before=before))
        assert made.step is not None
        if run.optimizers.dense.name == "auto" and run.pipeline != "dance":
            assert (made.step.optimizer_s > 0.1) == (made.run.optimizers.dense.name == "shampoo")
        return made.run, [each.said for each in made.lines]

    optimizers = RunOptimizers(dense=DenseOptimizer(name="auto", clip_norm=2.0))
    run = Run(data=RunData(train="x"), output="out", optimizers=optimizers)
    fresh, told = decided(run)
    assert fresh.optimizers.dense.name in ("shampoo", "adam")
    assert len(told) == 1
    other = "adam" if fresh.optimizers.dense.name == "shampoo" else "shampoo"
    before = replace(run, optimizers=RunOptimizers(dense=DenseOptimizer(name=other, learning_rate=0.7)))
    resumed, told = decided(run, before)
    dense = resumed.optimizers.dense
    assert (dense.name, dense.learning_rate, dense.clip_norm) == (other, run.optimizers.dense.learning_rate, 2.0)
    assert told == [f"optimizers.dense, which is auto, stays {other}, whose state the checkpoint has"]
    if is_here("second_order"):
        assert decided(replace(run, pipeline="dance"))[1] == []


@needs_systems("remote", "arrays")
def test_auto_is_decided_in_every_kind_of_job_or_refused(tmp_path: Path) -> None:
    """A trainer of servers and members of an array had Shampoo by it, which a run that names it is refused."""
    run = replace(a_run(tmp_path / "out"), checkpoint=None, optimizers=RunOptimizers(dense=DenseOptimizer(name="auto")))
    served = run_from_raw({**run_to_raw(run), "remote": {}}, "the run")
    told = "optimizers.dense, which is auto, takes adam: optimizers.dense.name: shampoo changes how"
    assert any(line.startswith(told) for line in dry_run(served))
    heard = list[str]()
    train(served, settings=("steps=2",), on_progress=lambda message: heard.append(message.get("note", "")))
    assert any(line.startswith(told) for line in heard)
    members = {"members": {"x": [], "y": ["seed=1"]}, "together": "always"}
    with pytest.raises(UsageError, match=r"optimizers\.dense\.name: auto changes .* which does not go with array"):
        dry_run(run_from_raw({**run_to_raw(run), "array": members}, "the run"))
