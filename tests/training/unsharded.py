"""What a run computes in one process, its tables unsharded, in plain PyTorch."""

from typing import Any

from recsmith.training import Run


def unsharded_losses(run: Run, steps: int) -> list[float]:
    """The losses of the first steps of a run, whose dense optimizer is Adam with its defaults."""
    return trained_unsharded(run, steps)[1]


def trained_unsharded(run: Run, steps: int) -> tuple[Any, list[float]]:
    """The model of a run after its first steps, and the losses of these."""
    import torch

    from recsmith.training.batches import training_batches
    from recsmith.training.job.models import build_task
    from recsmith.training.job.sharded import draw_weights
    from recsmith.training.optimizers.building import sparse_arguments, table_class
    from recsmith.training.sources import open_source
    from recsmith.training.stores.device import DeviceRows
    from recsmith.training.tables.plain import features_of, initial_weights_of
    from recsmith.training.tables.protocol import table_of

    source = open_source(run)
    task = build_task(run.model, source.schema, run.seed, tables_on="cpu")
    draw_weights(DeviceRows(task), initial_weights_of(task), run.seed)
    named = list(task.named_parameters())
    tables = [(table_of(name), parameter) for name, parameter in named if is_table(name)]
    dense = [parameter for name, parameter in named if not is_table(name)]
    optimizers = [
        *(table_class(own.name)([each], **sparse_arguments(own))
          for name, each in tables for own in [run.optimizers.sparse.of(name)]),
        torch.optim.Adam(dense, lr=1e-3),
    ]  # fmt: skip
    batches = training_batches(source, run.data.batch_sizes(1), features_of(task), rank=0, ranks=1)
    expected: list[float] = []
    for _ in range(steps):
        loss, _ = task(next(batches))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        expected.append(float(loss.detach()))
    return task, expected


def is_table(parameter: str) -> bool:
    """Whether a parameter's name is that of a pooled or of a sequence table's weights."""
    return any(f".{owner}." in parameter for owner in ("embedding_bags", "embeddings"))
