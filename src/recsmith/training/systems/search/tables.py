"""The network of an architecture search, in torch: masks on pooled vectors, and masks on dense layers.

Krishna et al. (arXiv 2110.14812); channel masks are those of Wan et al., "FBNetV2" (CVPR 2020, arXiv 2004.05565). Every
data sample draws its own choice for each part by a Gumbel-softmax. A part's output is the sum of its choices' prefixes,
weighted by the draw. In evaluation each part has one choice: that of `picked`, or else the likeliest.

B samples, T tables, F features, K choices of the part with most choices, S shares of rows, D columns
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn
from torchrec import EmbeddingBagConfig, EmbeddingConfig, KeyedJaggedTensor, KeyedTensor
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith._types import noun
from recsmith.data import JaggedIds
from recsmith.embeddings import EmbeddingTransform, Lookup, PhysicalTable
from recsmith.embeddings.truncated import Truncated, rows_left
from recsmith.errors import UsageError
from recsmith.files import decode_part
from recsmith.searching import PartChoices, Picks, SearchSpace
from recsmith.training.systems.stored.tables import StoredTable
from recsmith.training.tables.features import Features
from recsmith.training.tables.plain import plain
from recsmith.training.tables.protocol import TableModule

NEVER = -1e9  # score of a choice that a part does not have
FIELD = "model.table_module.space"
WHERE = "model.table_module (searched)"


@noun
class Folded(EmbeddingTransform):
    """A table with several numbers of rows at once: one physical table for each, all of the same width."""

    num_embeddings: int
    embedding_dim: int
    rows: tuple[int, ...]

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """One physical table for each number of rows."""
        return tuple(PhysicalTable(name=f"rows{each}", num_embeddings=each, embedding_dim=self.embedding_dim)
                     for each in self.rows)  # fmt: skip

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One lookup for each number of rows."""
        return tuple(Lookup(name=f"rows{each}", part=number) for number, each in enumerate(self.rows))

    @property
    def cover(self) -> tuple[int, ...]:
        """The first lookup alone, since each lookup holds all ids."""
        return (0,)

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of each physical table, with ids hashed to its number of rows."""
        words = {"num_embeddings": self.num_embeddings, "embedding_dim": self.embedding_dim}
        return tuple(Truncated(**words, columns=self.embedding_dim, rows=each).route(ids)[0] for each in self.rows)


class Draws(nn.Module):
    """Scores of the choices of some parts, and the draws of each sample."""

    def __init__(self, parts: Sequence[PartChoices], price: float) -> None:
        """price: of the run as it is; other prices are divided by it."""
        super().__init__()
        most = max((len(part.options) for part in parts), default=1)
        never, prices = torch.full((len(parts), most), NEVER), torch.zeros(len(parts), most)
        for n, part in enumerate(parts):
            never[n, : len(part.options)] = 0.0
            prices[n, : len(part.options)] = torch.tensor([each.price / (price or 1.0) for each in part.options])
        self.theta: torch.Tensor  # no parameter: neither updated nor averaged with layers
        self.never: torch.Tensor
        self.prices: torch.Tensor
        self.moments: torch.Tensor
        self.turns: torch.Tensor
        self.register_buffer("theta", torch.zeros(len(parts), most))
        self.register_buffer("never", never, persistent=False)
        self.register_buffer("prices", prices, persistent=False)
        self.register_buffer("moments", torch.zeros(2, len(parts), most))  # of Adam for choices
        self.register_buffer("turns", torch.zeros(2))  # updates of weights and of choices so far
        self.temperature = 1.0
        self.picked: Picks | None = None  # choices used in evaluation
        self.leaf: torch.Tensor | None = None  # leaf for the gradient of theta
        self.drawn: torch.Tensor | None = None  # draws of the last batch (B, parts, K)

    def scores(self) -> torch.Tensor:
        """Scores of choices (parts, K)."""
        return self.theta + self.never

    def forward(self, samples: int) -> torch.Tensor:
        """Draw shares for each sample (B, parts, K), which sum to 1 over K; one-hot (1, parts, K) in evaluation."""
        scores = self.scores()
        if self.training:
            self.leaf = scores.requires_grad_(torch.is_grad_enabled())
            noise = -torch.empty(samples, *scores.shape, device=scores.device).exponential_().log()
            self.drawn = ((scores + noise) / self.temperature).softmax(dim=2)
            return self.drawn
        chosen = scores.argmax(dim=1) if self.picked is None else torch.tensor(self.picked, device=scores.device)
        return nn.functional.one_hot(chosen, scores.shape[1]).to(scores).unsqueeze(0)


class SearchedTables(nn.Module, TableModule):
    """Embedding tables with masked pooled vectors; a model sees them as one collection.

    space: the choices of tables and layers, as in SearchSpace.
    """

    def __init__(
        self, configs: Sequence[EmbeddingBagConfig], device: torch.device, is_weighted: bool = False,
        *, space: dict[str, Any],
    ) -> None:  # fmt: skip
        super().__init__()
        self.space = decode_part(SearchSpace, space, FIELD)
        choices = {each.name: each for each in self.space.tables}
        self.logical = tuple(stored_by(config, choices.get(config.name)) for config in configs)
        check_widths(self.space, configs)
        self.tables: Any = plain(self._physical(), device, is_weighted)
        self.masks = TableMasks(self.space, self.logical)

    def embedding_bag_configs(self) -> list[Any]:
        """TorchRec's configs of the logical tables."""
        return [table.config for table in self.logical]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up masked vectors (B, D) of each feature."""
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
        return [*self._physical()]

    def _physical(self) -> list[Any]:
        """Configs of physical tables, with the pooling of their logical table, since each of them holds whole bags."""
        return [
            replace(config, pooling=getattr(table.config, "pooling", None))
            for table in self.logical
            for config in table.physical_configs()
        ]

    def names(self) -> list[str]:
        """Names of the logical tables."""
        return [table.config.name for table in self.logical]

    def vectors(self, name: str) -> torch.Tensor | None:
        """The vectors of a table without masks and with all its rows; None if there is no such table."""
        table = next((each for each in self.logical if each.config.name == name), None)
        if table is None:
            return None
        return self.tables.embedding_bags[table.physical_configs()[-1].name].weight.detach()

    def mask_layers(self, model: Any) -> None:
        """Put the choices of layers into a built-in model. Raises UsageError if the model has no such layer."""
        for each in self.space.layers:
            part, _, index = each.name.partition(".")
            try:
                mlp = model.dense_arch.model if part == "bottom" else model.over_arch.model[0]
                layers = cast(nn.Sequential, mlp._mlp)
                layers[int(index)] = ChosenLayer(cast(nn.Module, layers[int(index)]), each, self.space.whole)
            except (AttributeError, ValueError, IndexError):
                raise UsageError(
                    f"{WHERE}: the model has no layer '{each.name}'; layers of dlrm and dlrm_dcn have choices, by "
                    "model.bottom and model.top"
                ) from None


class ChoiceMasks(nn.Module):
    """Draws of the choices of tables, and the columns that each choice keeps."""

    def __init__(self, space: SearchSpace, logical: Sequence[StoredTable]) -> None:
        super().__init__()
        self.draws = Draws(space.tables, space.whole)
        self.seen = {name: places_of(table, name) for table in logical for name in table.config.feature_names}
        self.shares = max((len(table.parts) for table in logical), default=1)
        self.columns = max(table.config.embedding_dim for table in logical)
        masks = torch.zeros(len(space.tables), self.draws.theta.shape[1], self.shares, self.columns)
        for n, each in enumerate(space.tables):
            kept = sorted({choice.rows for choice in each.options})
            for k, choice in enumerate(each.options):
                masks[n, k, kept.index(choice.rows), : choice.width] = 1.0
        by_name = {each.name: n for n, each in enumerate(space.tables)}
        self.part_of = {
            place: (by_name.get(table.config.name), share)
            for table in logical for feature in table.config.feature_names
            for share, place in enumerate(places_of(table, feature))
        }  # fmt: skip
        self.masks: torch.Tensor
        self.register_buffer("masks", masks, persistent=False)


class TableMasks(ChoiceMasks):
    """Masks on pooled vectors. It holds no tables, so TorchRec's pipelines run it as a whole."""

    def __init__(self, space: SearchSpace, logical: Sequence[StoredTable]) -> None:
        super().__init__(space, logical)
        self.index: tuple[list[str], torch.Tensor] = ([], torch.empty(0))

    def forward(self, pooled: KeyedTensor) -> KeyedTensor:
        """Mask pooled vectors of physical features, and add them up to (B, D) for each logical feature."""
        names, widths, values = pooled.keys(), pooled.length_per_key(), pooled.values()
        drawn = torch.einsum("btk,tksd->btsd", self.draws(values.shape[0]), self.masks).flatten(1)
        places = self._places_of(names, widths, values.device)
        masked = values * torch.cat([drawn, drawn.new_ones(len(drawn), 1)], dim=1)[:, places]
        if self.shares == 1:
            return KeyedTensor(names, widths, masked)
        found = dict(zip(names, masked.split(widths, dim=1), strict=True))
        vectors = [torch.stack([found[name] for name in physical]).sum(dim=0) for physical in self.seen.values()]
        return KeyedTensor(list(self.seen), [each.shape[1] for each in vectors], torch.cat(vectors, dim=1))

    def _places_of(self, names: list[str], widths: list[int], device: torch.device) -> torch.Tensor:
        """For each pooled column its column in the masks (T S D); the extra last one for tables without a choice."""
        if self.index[0] != names:
            made: list[int] = []
            for name, width in zip(names, widths, strict=True):
                part, share = self.part_of[name]
                first = self.columns * (self.shares * (part or 0) + share)
                made += [self.masks[:, 0].numel()] * width if part is None else range(first, first + width)
            self.index = names, torch.tensor(made, device=device)
        return self.index[1]


class ChosenLayer(nn.Module):
    """A layer whose output is masked, or replaced by its input if a sample draws the choice to skip it."""

    def __init__(self, layer: nn.Module, choices: PartChoices, price: float) -> None:
        super().__init__()
        self.layer, self.draws = layer, Draws([choices], price)
        widest = max(choice.width for choice in choices.options)
        self.skip = next((k for k, choice in enumerate(choices.options) if not choice.width), None)
        self.masks: torch.Tensor
        masks = torch.tensor([[float(c < choice.width) for c in range(widest)] for choice in choices.options])
        self.register_buffer("masks", masks, persistent=False)

    def forward(self, read: torch.Tensor) -> torch.Tensor:
        """Mask or skip the layer. read: its input (B, columns)."""
        drawn = self.draws(read.shape[0])[:, 0]
        made = self.layer(read) * (drawn @ self.masks)
        return made if self.skip is None else made + _wide(read, made.shape[1]) * drawn[:, self.skip].unsqueeze(1)


def draws_of(model: nn.Module) -> list[Draws]:
    """The draws of a model: first of tables, then of layers in the order of the space."""
    return list(_draws(model))


def _draws(model: nn.Module) -> Iterator[Draws]:
    modules = list(model.modules())
    yield from (each.draws for each in modules if isinstance(each, ChoiceMasks))
    yield from (each.draws for each in modules if isinstance(each, ChosenLayer))


def pick(model: nn.Module, picks: Picks | None) -> None:
    """Make a model in evaluation use these choices; None: the likeliest ones."""
    first = 0
    for draws in draws_of(model):
        count = len(draws.theta)
        draws.picked = None if picks is None else picks[first : first + count]
        first += count


def stored_by(config: EmbeddingBagConfig | EmbeddingConfig, choices: PartChoices | None) -> StoredTable:
    """A table with one physical table for each number of rows that it may have."""
    rows = sorted({choice.rows for choice in choices.options}) if choices else [1.0]
    if len(rows) == 1:
        return StoredTable(config)
    counts = tuple(dict.fromkeys(rows_left(config.num_embeddings, each) for each in rows))
    folded = Folded(num_embeddings=config.num_embeddings, embedding_dim=config.embedding_dim, rows=counts)
    return StoredTable(config, folded)


def places_of(table: StoredTable, feature: str) -> list[str]:
    """The physical features of a logical feature, by share of rows."""
    return [feature] if table.transform is None else [f"{feature}@{each.name}" for each in table.transform.lookups]


def _wide(vectors: torch.Tensor, columns: int) -> torch.Tensor:
    return nn.functional.pad(vectors, (0, columns - vectors.shape[1]))


def check_widths(space: SearchSpace, configs: Sequence[EmbeddingBagConfig] | Sequence[EmbeddingConfig]) -> None:
    """Raise UsageError if the space has an unknown table, or a choice that is wider than its table."""
    columns = {config.name: config.embedding_dim for config in configs}
    for each in space.tables:
        if each.name not in columns:
            raise UsageError(f"{WHERE}: '{each.name}' is no table of the model; leave it out of the space")
        widest = max(choice.width for choice in each.options)
        if widest > columns[each.name]:
            raise UsageError(
                f"{WHERE}: table '{each.name}' has {columns[each.name]} columns and a choice of {widest}; none is wider"
            )
