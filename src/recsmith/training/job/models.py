"""The model of a run: one of torchrec.models or a function of yours, with its loss.

B samples, D dense columns, L labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import DLRM, DLRM_DCN
from torchrec.modules.embedding_configs import DataType, PoolingType

from recsmith._components import find, known, load, make
from recsmith.data import DataSchema
from recsmith.errors import UsageError
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.losses import Loss, Outcome, SoftmaxLoss, TaskLosses
from recsmith.training.models import MODEL, PooledSettings, check_tables, model_settings
from recsmith.training.run import Run, RunModel, RunTable
from recsmith.training.run.refusals import check_together, model_parts
from recsmith.training.run.tables import name_refused, tables_of
from recsmith.training.seams import TABLES
from recsmith.training.seams.capabilities import Part
from recsmith.training.seams.predicting import SystemLine
from recsmith.training.seams.registry import first_of, systems
from recsmith.training.sources import BatchSource, open_source
from recsmith.training.tables.features import Features
from recsmith.training.tables.plain import configs_of, features_of, outputs_of
from recsmith.workloads.patterns import check_fit, fits

DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
POOLINGS = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}


class Task(nn.Module):
    """A model with its loss.

    TorchRec's pipelines trace the code of modules with tables symbolically, so that code neither branches on a batch
    nor counts its samples. The loss does, and is therefore a module of its own.
    """

    def __init__(self, model: nn.Module, precision: str, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.precision = precision

    def forward(self, batch: TrainingBatch) -> tuple[torch.Tensor, Outcome]:
        """(loss, outcome), as TorchRec's pipelines expect it."""
        if self.precision == "bf16":
            with torch.autocast(next(self.parameters()).device.type, torch.bfloat16):
                logits = self.model(batch.dense_features, batch.sparse_features)
        else:
            logits = self.model(batch.dense_features, batch.sparse_features)
        return self.loss(logits, batch)


def build_task(
    model: RunModel, schema: DataSchema, seed: int, tables_on: str = "meta", module: Any = None,
    parts: Sequence[Part] = (),
) -> Task:  # fmt: skip
    """The model of a run for data with a schema; dense parameters depend only on the seed.

    Args:
        model: the run's model.
        schema: schema of the data.
        seed: seed of the initial weights.
        tables_on: device of the embedding tables; on 'meta' they use no memory until they are sharded.
        module: table module of pooled tables, as a run names one, if it is not the model's; weights are the same.
        parts: parts of the run, which are checked against the model's.

    Raises:
        UsageError: layers, tables and data do not fit together.
    """
    torch.manual_seed(seed)
    loss = SoftmaxLoss() if model.loss == "softmax" else _loss_of(model, schema)
    tables, device = tables_of(model, schema), torch.device(tables_on)
    check_fit("model.initial", [each.tables for each in model.initial], [table.name for table in tables])
    weighted = any(feature.weighted for feature in schema.features)
    check_together([*model_parts(model, tables=tables, weighted=weighted), *parts])
    pooled = [table for table in tables if table.pooling != "none"]
    unpooled = [table for table in tables if table.pooling == "none"]
    collection = _pooled(model, schema, pooled, device, module) if pooled else None
    sequences = _sequences(model, unpooled, device) if unpooled else None
    torch.manual_seed(seed)  # again: tables on a device have drawn random numbers, tables on meta have not
    if model.name in known(MODEL):
        built = _named(model, schema, tables, collection, sequences)
    else:
        built = _built(model, collection, sequences, max(1, len(schema.dense)), len(schema.labels))
    return Task(built, model.precision, loss)


def _loss_of(model: RunModel, schema: DataSchema) -> Loss:
    """The losses of all tasks, or the one loss of all labels."""
    losses = TaskLosses(model.tasks, schema)
    return losses if losses.tasks else Loss()


@dataclass(frozen=True)
class Unsharded:
    """A run with its data and its model, whose tables have no memory yet."""

    run: Run
    source: BatchSource
    task: Task
    features: Features  # the features that the model looks up
    lines: tuple[SystemLine, ...] = ()  # what was decided while it was built

    @property
    def parameters(self) -> int:
        """Number of weights of the model, including its tables."""
        return sum(parameter.numel() for parameter in self.task.parameters())


def unsharded(run: Run, source: BatchSource | None = None) -> Unsharded:
    """A run's model, built for its data with the tables that systems ask for. source: other data than the run's."""
    source = source or open_source(run)
    decided: list[SystemLine] = []
    module, parts = None, list[Part]()
    for system in systems():
        asked = system.tables(run, source)
        run, module = asked.run, asked.module or module
        decided += asked.lines
        parts += asked.parts
    task = build_task(run.model, source.schema, run.seed, module=module, parts=parts)
    for system in systems():
        system.check_model(run, task.model)
    own = [each.tables for each in run.optimizers.sparse.tables]
    check_fit("optimizers.sparse.tables", own, [each.name for each in configs_of(task)])
    return Unsharded(run, source, task, features_of(task), tuple(decided))


def _pooled(
    model: RunModel, schema: DataSchema, tables: Sequence[RunTable], device: torch.device, module: Any
) -> nn.Module:
    """The pooled tables of a model, built as a system, the model's settings or the run ask."""
    own: Any = model.table_module or "plain"
    wanted = module or first_of(system.table_module(model, tables) for system in systems()) or own
    configs = [EmbeddingBagConfig(**_config_fields(table, model), pooling=POOLINGS[table.pooling]) for table in tables]
    return make(TABLES, wanted, configs, device, any(feature.weighted for feature in schema.features))


def _sequences(model: RunModel, tables: Sequence[RunTable], device: torch.device) -> nn.Module:
    """The tables of a model that are not pooled."""
    first = tables[0]
    wider = next((table for table in tables if table.embedding_dim != first.embedding_dim), None)
    if wider is not None:
        raise UsageError(
            f"tables '{first.name}' and '{wider.name}' have pooling none and {first.embedding_dim} and "
            f"{wider.embedding_dim} columns; TorchRec wants one embedding_dim for all of these"
        )
    configs = [EmbeddingConfig(**_config_fields(table, model)) for table in tables]
    asked = first_of(system.sequences(model, tables, configs, device) for system in systems())
    return EmbeddingCollection(device=device, tables=configs) if asked is None else asked


def _named(
    model: RunModel, schema: DataSchema, tables: Sequence[RunTable], collection: Any, sequences: Any
) -> nn.Module:
    """A model of recsmith.training.models, made from its tables; UsageError if it cannot read these tables."""
    settings = model_settings(model.name, model.arguments)
    assert settings is not None  # every named model has settings
    if not isinstance(settings, PooledSettings):
        check_tables(model.name, settings, tables, schema)
    return find(MODEL, model.name)(settings, sequences, collection, max(1, len(schema.dense)), len(schema.labels))


def _built(model: RunModel, collection: Any, sequences: Any, dense: int, labels: int) -> nn.Module:
    if ":" in model.name:
        return _own(model, collection, sequences, dense)
    if labels != 1:
        raise UsageError(f"{model.name} predicts one label and the data has {labels}; name a model of your own")
    try:
        made = _built_in(model, collection, dense)
    except (RuntimeError, MemoryError, TypeError, ValueError, AssertionError, OverflowError) as error:  # from PyTorch
        reason = str(error).partition("\n")[0] or "no memory is left"
        raise UsageError(f"the layers of model {model.name} cannot be made ({reason}); give it smaller ones") from None
    if hasattr(collection, "mask_layers"):  # tables of a search, which also chooses layers
        collection.mask_layers(made)
    return made


def _built_in(model: RunModel, collection: Any, dense: int) -> nn.Module:
    """A model of torchrec.models."""
    if model.name == "deepfm":
        made = SimpleDeepFMNN(dense, collection, model.hidden, model.factors)
        made.inter_arch.sparse_feature_names = _outputs(collection)
        made.over_arch.model = next(made.over_arch.model.children())  # without its sigmoid: losses here take logits
        return made
    layers: Mapping[str, Any] = {
        "dense_in_features": dense,
        "dense_arch_layer_sizes": [*model.bottom, model.embedding_dim // getattr(collection, "ratio", 1)],
        "over_arch_layer_sizes": [*model.top, 1],
    }
    if model.name == "dlrm":
        made = DLRM(collection, **layers)
    else:
        made = DLRM_DCN(collection, **layers, dcn_num_layers=model.cross_layers, dcn_low_rank_dim=model.cross_rank)
    made.sparse_arch._sparse_feature_names = _outputs(collection)
    return made


def _outputs(collection: Any) -> list[str]:
    """Keys of what tables return; torchrec's models read by feature, but shared features have other keys."""
    return [each.name for each in outputs_of(collection.embedding_bag_configs())]


def _own(model: RunModel, collection: Any, sequences: Any, dense: int) -> nn.Module:
    """The module that the user's function makes from the tables; it must map (dense, features) to logits."""
    more = {} if sequences is None else {"sequences": sequences}
    made = load(model.name)(collection, dense, **more, **(model.arguments or {}))
    if not isinstance(made, nn.Module):
        raise UsageError(f"model '{model.name}' returned a {type(made).__name__}; it must return a torch.nn.Module")
    return made


def _config_fields(table: RunTable, model: RunModel) -> dict[str, Any]:
    """Fields that configs of pooled and of other tables have in common."""
    if table.data_type not in DATA_TYPES:
        raise UsageError(f"table '{table.name}' is {table.data_type}; TorchRec trains {', '.join(DATA_TYPES)}")
    if any(hasattr(each(), table.name) for each in (nn.ModuleDict, nn.ParameterDict)):
        raise UsageError(name_refused(table))
    reach = next((each.reach for each in model.initial if fits(each.tables, table.name)), None)
    start = {} if reach is None else {"weight_init_min": -reach, "weight_init_max": reach}
    return {
        **start, "name": table.name, "num_embeddings": table.num_embeddings, "embedding_dim": table.embedding_dim or 0,
        "feature_names": list(table.features), "data_type": DATA_TYPES[table.data_type],
    }  # fmt: skip
