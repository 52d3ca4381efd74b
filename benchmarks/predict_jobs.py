"""The jobs that benchmarks/predict.py measures: each model as its template describes it, under plain SGD.

Dense models run under DistributedDataParallel, those with tables under TorchRec's DistributedModelParallel with a plan;
on GPUs where each rank has one, and on CPU elsewhere.
"""

import gc
import json
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from recsmith._process import keep_freed_memory
from recsmith.files import decode
from recsmith.jobs.log import write_message
from recsmith.plans import plan_from_raw
from recsmith.prediction.capturing import StepTimer, capture
from recsmith.prediction.kernels.times import usual
from recsmith.prediction.models import Model
from recsmith.training.job.sharded import rank_device

BATCHES = 4  # that a job repeats


def train(
    model: dict[str, Any], plan: dict[str, Any] | None, batch: int, folder: str, plain: int, steps: int,
    told: str, threads: int = 1,
) -> float:  # fmt: skip
    """Train a described model on this rank until its steps are captured; seconds of a step after that.

    They are also written into the file `told`.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()  # as with jemalloc; by glibc's defaults, fresh pages of large tensors take most of a step
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    made = decode(Model, model, "the job's model")
    optimizer, loss, draw = (sparse_job if plan else dense_job)(made, plan, batch)
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    batches = [draw(generator) for _ in range(BATCHES)]
    with capture(folder, plain=plain, steps=steps) as taken:
        number = 0
        while not taken.done:
            _step(optimizer, loss, batches[number % BATCHES])
            number += 1
    clock = StepTimer()
    clock.tick()
    for _ in range(plain):
        _step(optimizer, loss, batches[number % BATCHES])
        clock.tick()
    after = clock.seconds()
    if torch.distributed.get_rank() == 0:
        Path(told).write_text(json.dumps({"after_s": usual(after)}))
    return usual(after)


def train_each(jobs: list[dict[str, Any]]) -> int:
    """Train several described models in this process, one after the other; how many."""
    for number, job in enumerate(jobs):
        begun = time.perf_counter()
        try:
            found = f"{train(**job) * 1e3:.2f} ms a step"
        except (RuntimeError, ValueError) as error:  # the others go on
            found = f"failed: {error}"
        gc.collect()
        write_message([f"job {number + 1} of {len(jobs)}: {job['model']['kind']}, batch {job['batch']:,},",
                       f"{found}, {time.perf_counter() - begun:.1f} s"])  # fmt: skip
    return len(jobs)


def take_turns(
    model: dict[str, Any], plans: list[dict[str, Any]], batch: int, folder: str, rounds: int, steps: int
) -> dict[str, Any]:
    """Seconds of a step of each plan in each round (plans, rounds); the first plan's step is captured before."""
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    made, rank = decode(Model, model, "the job's model"), torch.distributed.get_rank()
    jobs = [sparse_job(made, plan, batch) for plan in plans]
    generator = torch.Generator().manual_seed(rank)
    batches = [jobs[0][2](generator) for _ in range(BATCHES)]
    with capture(folder, plain=20, steps=8) as taken:
        number = 0
        while not taken.done:
            _step(*jobs[0][:2], batches[number % BATCHES])
            number += 1
    seconds: list[list[float]] = [[] for _ in plans]
    for _ in range(rounds):
        for mine, (optimizer, loss, _) in zip(seconds, jobs, strict=True):
            _step(optimizer, loss, batches[0])  # the caches forget the plan before
            torch.distributed.barrier()
            begun = time.perf_counter()
            for place in range(1, steps):
                _step(optimizer, loss, batches[place % BATCHES])
            torch.distributed.barrier()
            mine.append((time.perf_counter() - begun) / (steps - 1))
    return {"seconds": seconds}


def _step(optimizer: Any, loss: Any, batch: Any) -> None:
    optimizer.zero_grad()
    loss(batch).backward()
    optimizer.step()


def dense_job(model: Model, _: Any, batch: int) -> tuple[Any, Any, Any]:
    """(optimizer, loss of a batch, drawing of one) of a model without tables."""
    device = rank_device()
    made = Perceptron(model) if model.kind == "mlp" else Transformer(model)
    net = nn.parallel.DistributedDataParallel(made.to(device))
    columns = (model.dense_features,) if model.kind == "mlp" else (model.sequence, model.width)

    def draw(generator: torch.Generator) -> Any:
        inputs, labels = torch.rand(batch, *columns, generator=generator), torch.rand(batch, generator=generator)
        return inputs.to(device), labels.round().to(device)

    return torch.optim.SGD(net.parameters(), lr=0.01), lambda b: cross_entropy(net(b[0]).squeeze(-1), b[1]), draw


def sparse_job(model: Model, raw_plan: Any, batch: int) -> tuple[Any, Any, Any]:
    """(optimizer, loss of a batch, drawing of one) of DLRM or DLRM-DCN under a plan."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.sharding_plan import get_default_sharders
    from torchrec.models.dlrm import DLRM, DLRM_DCN
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    from recsmith.adapters.convert import to_sharding_plan

    plan = plan_from_raw(raw_plan, "the plan")
    tables = plan.workload.tables
    configs = [EmbeddingBagConfig(name=table.name, embedding_dim=table.embedding_dim, feature_names=[table.name],
                                  num_embeddings=table.num_embeddings) for table in tables]  # fmt: skip
    collection, width = EmbeddingBagCollection(tables=configs, device=torch.device("meta")), tables[0].embedding_dim
    sizes: Any = (model.dense_features, [*model.bottom, width], [*model.top, 1])
    cross: Any = () if model.kind == "dlrm" else (model.cross_layers, model.cross_rank)
    made: Any = (DLRM if model.kind == "dlrm" else DLRM_DCN)(collection, *sizes, *cross)
    apply_optimizer_in_backward(torch.optim.SGD, made.sparse_arch.parameters(), {"lr": 0.1})
    sharders: Any = get_default_sharders()
    sharding = to_sharding_plan(plan, made, sharders=sharders)
    device = rank_device()
    net = DistributedModelParallel(made, device=device, plan=sharding, sharders=sharders)
    dense = [each for name, each in net.named_parameters() if "sparse_arch" not in name]
    lengths = [int(table.features[0].pooling_factor) for table in tables]

    def draw(generator: torch.Generator) -> Any:
        ids = [torch.randint(0, table.num_embeddings, (batch * length,), generator=generator)
               for table, length in zip(tables, lengths, strict=True)]  # fmt: skip
        bags = torch.tensor(lengths, dtype=torch.int32).repeat_interleave(batch)
        keyed = KeyedJaggedTensor([table.name for table in tables], torch.cat(ids), lengths=bags)
        dense, labels = torch.rand(batch, model.dense_features, generator=generator), torch.rand(batch).round()
        return dense.to(device), keyed.to(device), labels.to(device)

    return torch.optim.SGD(dense, lr=0.01), lambda b: cross_entropy(net(b[0], b[1]).squeeze(-1), b[2]), draw


class Perceptron(nn.Sequential):
    """Linear layers with rectifiers between them."""

    def __init__(self, model: Model) -> None:
        sizes = [model.dense_features, *model.layers, 1]
        pairs = [(nn.Linear(i, o), nn.ReLU()) for i, o in pairwise(sizes)]
        super().__init__(*[each for pair in pairs for each in pair][:-1])


class Block(nn.Module):
    """Attention and perceptron with shortcuts."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width, self.heads = model.width, model.heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, model.hidden), nn.Linear(model.hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, w) -> (B, S, w)."""
        batch, places, width = x.shape
        each = width // self.heads
        q, k, v = self.joint(self.first(x)).view(batch, places, 3, self.heads, each).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.softmax(q @ k.transpose(-2, -1) * each**-0.5, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, places, width))
        return x + self.down(torch.relu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Blocks, the mean over the sequence, and a linear layer."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(model) for _ in range(model.blocks)])
        self.head = nn.Linear(model.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, w) -> (B, 1)."""
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))
