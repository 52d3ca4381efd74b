"""Tables that are not pooled in the network of an architecture search, in torch: masks on the rows of events.

A sample draws its own choice for each table, which applies to all rows of its events.

B samples, n ids of a feature in all of them, T tables, K choices, S shares of rows, D columns
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingCollection, EmbeddingConfig, JaggedTensor, KeyedJaggedTensor
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.searching import SearchSpace
from recsmith.training.systems.search.tables import ChoiceMasks, check_widths, stored_by
from recsmith.training.tables.features import Features
from recsmith.training.tables.protocol import TableModule


class SearchedSequences(nn.Module, TableModule):
    """Tables with masked rows; a model sees them as one collection. space: of these tables alone."""

    def __init__(self, configs: Sequence[EmbeddingConfig], device: torch.device, *, space: SearchSpace) -> None:
        super().__init__()
        choices = {each.name: each for each in space.tables}
        self.logical = tuple(stored_by(config, choices.get(config.name)) for config in configs)
        check_widths(space, configs)
        stored: Any = self.stored()
        self.tables = EmbeddingCollection(tables=stored, device=device)
        self.masks = RowMasks(space, self.logical)

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """TorchRec's configs of the logical tables."""
        return [table.config for table in self.logical]  # type: ignore[misc]

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Look up masked rows (n, D) of each feature."""
        return self.masks(self.tables(features))

    def features(self) -> Features:
        """Features of the data, or physical features for tables with several numbers of rows."""
        names = tuple(name for config in self.stored() for name in config.feature_names)
        return Features(names, {
            feature: table.transform
            for table in self.logical if table.transform is not None
            for feature in table.config.feature_names
        })  # fmt: skip

    def stored(self) -> list[BaseEmbeddingConfig]:
        """The configs of the trained tables, all at full width."""
        return [config for table in self.logical for config in table.physical_configs()]

    def names(self) -> list[str]:
        """Names of the logical tables."""
        return [table.config.name for table in self.logical]

    def vectors(self, name: str) -> torch.Tensor | None:
        """The vectors of a table without masks and with all its rows; None if there is no such table."""
        table = next((each for each in self.logical if each.config.name == name), None)
        if table is None:
            return None
        weights: Any = self.tables.embeddings[table.physical_configs()[-1].name]
        return weights.weight.detach()


class RowMasks(ChoiceMasks):
    """Masks on rows. It holds no tables, so TorchRec's pipelines run it as a whole."""

    def forward(self, found: Mapping[str, JaggedTensor]) -> dict[str, JaggedTensor]:
        """Mask rows of physical features, and add them up to (n, D) for each logical feature."""
        rows = {name: found[name] for physical in self.seen.values() for name in physical}
        samples = len(next(iter(rows.values())).lengths())
        drawn = torch.einsum("btk,tksd->btsd", self.draws(samples), self.masks)  # (1, T, S, D) in evaluation
        return {
            feature: JaggedTensor(
                torch.stack([self._masked(rows[name], drawn, name) for name in physical]).sum(dim=0),
                lengths=rows[physical[0]].lengths(),
            )
            for feature, physical in self.seen.items()
        }

    def _masked(self, rows: JaggedTensor, drawn: torch.Tensor, name: str) -> torch.Tensor:
        """The rows of a physical feature (n, D), each masked by the draw of its sample."""
        part, share = self.part_of[name]
        values = rows.values()
        if part is None:
            return values
        own = drawn[:, part, share, : values.shape[1]]
        if len(own) > 1:
            own = torch.repeat_interleave(own, rows.lengths().long(), dim=0)
        return values * own
