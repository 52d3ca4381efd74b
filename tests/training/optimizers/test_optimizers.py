"""Optimizers of tables are what their noun says, for torch, TorchRec and FBGEMM; dense ones keep a contract."""

from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from support.systems import needing
from torchrec.distributed.utils import convert_to_fbgemm_types, optimizer_type_to_emb_opt_type

from recsmith.errors import UsageError
from recsmith.testing.optimizers import DenseOptimizerContract, step_down
from recsmith.training import DenseOptimizer, SparseOptimizer
from recsmith.training.job.sharded import set_steps, uncounted
from recsmith.training.optimizers.building import fuse, sparse_arguments, table_class
from recsmith.training.optimizers.dense import check_dense_optimizer, dense_class
from recsmith.workloads.optimizers import OPTIMIZERS, Optimizer

KIND = EmbOptimType.PARTIAL_ROWWISE_ADAM  # corrects by the count
EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.usefixtures("torchrec")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are on the path."""
    monkeypatch.syspath_prepend(EXAMPLES)


class TestAdam(DenseOptimizerContract):
    name = "adam"


class TestSgdInCapitals(DenseOptimizerContract):
    name = "SGD"


class TestAdamW(DenseOptimizerContract):
    name = "adamw"


class TestOnesOwn(DenseOptimizerContract):
    name = "own_optimizer:SignDescent"


def test_unknown_optimizers_get_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"torch\.optim has no 'adm'.*adam"):
        dense_class("adm")


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=str)
def test_the_noun_of_an_optimizer_of_tables_holds(optimizer: Optimizer, fbgemm: None) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    assert optimizer.fbgemm_name in EmbOptimType.__members__
    cls = table_class(optimizer.name)
    settings: dict[str, Any] = {} if optimizer.settings == () else {"eps": 1e-6}
    arguments = sparse_arguments(SparseOptimizer(name=optimizer.name, **settings))
    table = torch.nn.Parameter(torch.randn(5, 4))
    made = cls([table], **arguments)
    if optimizer.copies:  # TorchRec has the others in fused kernels alone
        step_down(made, [table], 1)
        shapes = {
            name: "scalar" if value.numel() == 1 else "row-wise" if value.numel() == 5 else "element-wise"
            for name, value in made.state[table].items()
            if value is not None
        }
        assert shapes == optimizer.copied_states


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=lambda each: each.name)
def test_settings_that_an_optimizer_does_not_read_are_refused(optimizer: Optimizer) -> None:
    """Each setting is taken by the optimizers that have it, and refused by all others, where the run is read."""
    for setting in ("eps", "weight_decay", "beta1", "beta2"):
        given: dict[str, Any] = {setting: 0.5}
        if setting in optimizer.settings:
            SparseOptimizer(name=optimizer.name, **given)
            continue
        with pytest.raises(UsageError, match=rf"{setting} is 0\.5, and {optimizer.name} has none; leave it out"):
            SparseOptimizer(name=optimizer.name, **given)


def test_settings_out_of_their_ranges_are_refused() -> None:
    for setting, value in (("eps", -1), ("weight_decay", -0.1), ("beta1", 1), ("beta2", 1.5), ("beta1", -0.5)):
        given: dict[str, Any] = {setting: value}
        with pytest.raises(UsageError, match=f"sparse.{setting} is {value:g}; it must be 0 or more"):
            SparseOptimizer(name="adam", **given)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=lambda each: each.name)
def test_fused_optimizers_are_what_fbgemm_takes(optimizer: Optimizer) -> None:
    """TorchRec makes the class, names FBGEMM's optimizer by it, and hands arguments on to FBGEMM's tables."""
    settings = SparseOptimizer(name=optimizer.name, learning_rate=0.25)  # type: ignore[arg-type]
    parameter: Any = torch.nn.Parameter(torch.zeros(3, 2))
    fuse([(None, parameter)], settings)
    assert optimizer_type_to_emb_opt_type(*parameter._optimizer_classes).name == optimizer.fbgemm_name  # type: ignore[union-attr]
    (arguments,) = parameter._optimizer_kwargs
    wanted = {"lr": 0.25, **{name: getattr(settings, name) for name in optimizer.settings}}
    assert arguments == wanted
    taken = signature(SplitTableBatchedEmbeddingBagsCodegen.__init__).parameters
    assert convert_to_fbgemm_types(arguments).keys() - {"lr"} | {"learning_rate"} <= taken.keys()


def test_fbgemm_counts_steps_of_training_alone() -> None:
    """Tables of a GPU on torch's device without numbers: they count, and their kernel refuses it."""
    cells = [(10, 4, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)]
    tables = SplitTableBatchedEmbeddingBagsCodegen(cells, optimizer=KIND, device=torch.device("meta"))
    tables.register_forward_pre_hook(uncounted)
    job: Any = SimpleNamespace(
        model=torch.nn.Module(), optimizer=SimpleNamespace(set_optimizer_step=tables.set_optimizer_step)
    )
    job.model._lookups = [torch.nn.ModuleList([tables])]
    set_steps(job, 7)

    def counted() -> int:
        with pytest.raises(RuntimeError, match="on device META"):  # said by the kernel, which is last
            tables(torch.tensor([1, 2], device="meta"), torch.tensor([0, 1, 2], device="meta"))
        return int(tables.iter_cpu)

    assert counted() == 8
    with torch.no_grad():
        assert counted() == 8
    tables.eval()
    assert counted() == 8
    tables.train()
    assert counted() == 9
    set_steps(job, 3)
    assert counted() == 4


TORCHS = sorted(each.lower() for each in torch.optim.__all__ if each[0].isupper())
CANNOT = {"lbfgs": "docs/optimizers.md has such steps", "sparseadam": "sparse gradients", "muon": "matrices alone",
          "optimizer": "all of them are made from"}  # fmt: skip


@pytest.mark.parametrize("within", [None, needing("halves", "split"), needing("halves", "master")])
@pytest.mark.parametrize("name", TORCHS)
def test_each_optimizer_of_torch_trains_dense_layers_or_is_refused_before_anything_starts(
    name: str, within: str | None
) -> None:
    """Asked by a step with gradients of zero, as each job takes one; in halves, too."""
    arguments = None if within is None else {"optimizer": name}
    settings = DenseOptimizer(name=within or name, arguments=arguments)
    if name in CANNOT:
        with pytest.raises(UsageError, match=f"cannot train dense layers here: .*{CANNOT[name]}"):
            check_dense_optimizer(settings)
    else:
        check_dense_optimizer(settings)


class WantsClosure(torch.optim.SGD):
    """Of a user's, whose step wants the loss again."""

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        return closure()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"name": "adam", "arguments": {"betas": 3}},
            r"adam cannot be made with arguments \{betas: 3\} \(.*\)",
        ),
        needing(
            "halves", {"name": "split", "arguments": {"betas": 3}}, r"split cannot be made with arguments \{betas: 3\}"
        ),
        ({"name": "adam", "arguments": {"weight_decay": "x"}}, r"cannot be made with arguments \{weight_decay: x\}"),
        ({"name": f"{__name__}:WantsClosure"}, r"WantsClosure cannot take a step with no arguments \(.*closure"),
    ],
)
def test_what_an_optimizer_cannot_do_is_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        check_dense_optimizer(DenseOptimizer(**settings))
    assert "\n" not in str(refused.value)
