"""The training that a run starts from: a checkpoint with optimizer state, or an exported model of weights alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from recsmith.errors import UsageError
from recsmith.training.job.card import CARD, MODEL, ModelCard, check_as_trained, read_card
from recsmith.training.job.export import WEIGHTS, opened_file, tensors_in
from recsmith.training.job.resuming import CHECKPOINTS, PROGRESS, STATE, Saved, checkpoint_folders
from recsmith.training.optimizers.settings import RunOptimizers
from recsmith.training.run import RunModel
from recsmith.training.stores.checkpoint import CheckpointRows
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.systems.warm_start.reads import Reads
from recsmith.training.tables.protocol import table_of

WEIGHT = "model."  # prefix of the names of weights in a checkpoint


@dataclass(frozen=True)
class Trained:
    """Weights of an earlier training, by their names in that training.

    path: as the run names it. saved: a checkpoint; None for an exported model. model: the folder of the exported model;
    None if there is none (yet).
    """

    path: str
    saved: Saved | None
    model: Path | None

    @cached_property
    def card(self) -> ModelCard | None:
        """The card of the exported model, which describes its model and data; None if there is none."""
        if self.model is None:
            return None
        card = read_card(self.model)
        check_as_trained(card, str(self.model))
        return card

    @cached_property
    def tensors(self) -> dict[str, WholeTensor]:
        """All tensors, by the checkpoint's keys (`model.*`, `optimizer.*`) or by the exported model's names."""
        if self.saved is not None:
            return CheckpointRows(self.state).whole()
        assert self.model is not None
        check_as_trained(read_card(self.model), self.path)
        with opened_file(self.model / WEIGHTS) as opened:
            return tensors_in(opened)

    @cached_property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights, by their names in the training's model, or by exported names."""
        shapes = {name: tuple(each.shape) for name, each in self.tensors.items()}
        if self.saved is None:
            return shapes
        return {name.removeprefix(WEIGHT): shape for name, shape in shapes.items() if name.startswith(WEIGHT)}

    def names_of(self, exported: Mapping[str, str]) -> dict[str, str]:
        """The training's name for each of a model's weights.

        exported: the model's names of weights, mapped to exported names.
        """
        return self._usual(exported) | self.apart(exported)

    def apart(self, exported: Mapping[str, str]) -> dict[str, str]:
        """The training's names of tables that are in another module there, found by the name of the table.

        With towers, for example, tables are one module further down; their rows are the same.
        """
        tables = {table: name for name in self.weights if (table := table_of(name))}
        missing = [name for name, there in self._usual(exported).items() if there not in self.weights]
        return {name: tables[table] for name in missing if (table := table_of(name)) in tables}

    def _usual(self, exported: Mapping[str, str]) -> dict[str, str]:
        return dict(exported) if self.saved is None else {name: name for name in exported}

    @property
    def state(self) -> Path:
        """The folder of a checkpoint's tensors."""
        assert self.saved is not None
        return self.saved.folder / STATE

    @property
    def run_model(self) -> RunModel | None:
        """The settings of the training's model; None if they are not known."""
        return self.saved.run.model if self.saved else self.card.model if self.card else None

    def read(self, names: Sequence[str]) -> list[torch.Tensor]:
        """Read whole tensors of a checkpoint."""
        reads, kinds = Reads(self.state), [self.tensors[each] for each in names]
        found = [torch.empty(each.shape, dtype=each.dtype) for each in kinds]
        for name, tensor in zip(names, found, strict=True):
            reads.add(name, (0,) * tensor.dim(), tensor)
        reads.run()
        return found

    @property
    def optimizers(self) -> RunOptimizers | None:
        """The optimizers of the training, whose state is saved; None for an exported model."""
        return None if self.saved is None else self.saved.run.optimizers

    @property
    def step(self) -> int | None:
        """The step after which the weights were saved; None if it is not known."""
        return self.saved.progress["step"] if self.saved else self.card.step if self.card else None


def open_trained(path: str) -> Trained:
    """Open what is stored at a path.

    Raises:
        UsageError: it is neither a run with a checkpoint or a model, nor a checkpoint, nor a model.
    """
    folder = Path(path)
    if (folder / PROGRESS).exists():
        beside = folder.parent.parent / MODEL
        return Trained(path, Saved(folder), beside if (beside / CARD).exists() else None)
    model = next((each for each in (folder / MODEL, folder) if (each / CARD).exists()), None)
    if found := checkpoint_folders(folder / CHECKPOINTS):
        return Trained(path, Saved(found[-1]), model)
    if model is None:
        raise UsageError(
            f"start_from: '{path}' holds no checkpoint and no trained model; give the output folder of a run that has "
            "saved its state, a checkpoint, or a model"
        )
    return Trained(path, None, model)
