"""The maps of a model's raw ids on this rank: they replace ids of batches by rows, and initialize reassigned rows.

n ids of a feature in all samples
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchrec import KeyedJaggedTensor
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith._types import Ints
from recsmith.errors import UsageError
from recsmith.training.step_clock import STEPS
from recsmith.training.systems.dynamic.exchange import take_all
from recsmith.training.systems.dynamic.fresh import RowShard, draw_anew, shards_in
from recsmith.training.systems.dynamic.id_rows import IdRows, Taken
from recsmith.training.systems.dynamic.settings import DynamicRule
from recsmith.training.tables.protocol import torchrec_initial


class IdMaps:
    """The maps of a collection's tables.

    configs: of all tables of the collection. rules: of tables with raw ids. seed: of the run, from which new weights of
    rows are drawn. step: the last one trained. lookups, served, evicted: counts since CountedIds last read and reset
    them. read, given_anew: lookups and reassigned rows by table, since they were last read and reset.
    """

    def __init__(self, configs: Sequence[BaseEmbeddingConfig], rules: Mapping[str, DynamicRule]) -> None:
        self.rules = rules
        self.configs = [config for config in configs if config.name in rules]
        self.start = {config.name: torchrec_initial(config) for config in self.configs}
        self.seed, self.step = 0, 0
        self.lookups, self.served, self.evicted = 0, 0, 0
        self.read, self.given_anew = Counter[str](), Counter[str]()
        self._shards: tuple[nn.Module, dict[str, list[RowShard]]] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The features that have raw ids."""
        return tuple(name for config in self.configs for name in config.feature_names)

    @cached_property
    def tables(self) -> dict[str, IdRows]:
        """This rank's parts of the map of each table; for a trained model, they are read from its files."""
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        made: dict[str, IdRows] = {}
        for config in self.configs:
            rule = self.rules[config.name]
            made[config.name] = IdRows(config.num_embeddings, rule.dynamic, rank, ranks)
            if rule.ids is not None:
                _read(made[config.name], Path(rule.ids), config.name)
        return made

    def rows(self, features: KeyedJaggedTensor, tables: nn.Module) -> KeyedJaggedTensor:
        """The features with raw ids replaced by rows. tables: module with the rows; in training, new ids get rows."""
        learns = tables.training and torch.is_grad_enabled() and STEPS.runs
        self.step += learns
        values, ends = features.values().clone(), features.offset_per_key()
        ids, places = values.numpy(), {name: at for at, name in enumerate(features.keys())}
        spans = {
            config.name: [slice(ends[places[name]], ends[places[name] + 1]) for name in config.feature_names]
            for config in self.configs
        }
        wanted = [np.concatenate([ids[span] for span in of_table]) for of_table in spans.values()]
        found = take_all(list(self.tables.values()), wanted, self.step if learns else None)
        for (table, of_table), taken in zip(spans.items(), found, strict=True):
            self._check(table, taken)
            _put(ids, of_table, taken.rows)
        if learns:
            self._learnt(found, tables)
        return KeyedJaggedTensor(
            features.keys(), values, weights=features.weights_or_none(), lengths=features.lengths(),
            stride=features.stride(),
        )  # fmt: skip

    def _learnt(self, found: Sequence[Taken], tables: nn.Module) -> None:
        """Initialize the rows that were given to other ids, and count."""
        self.lookups += sum(len(each.rows) for each in found)
        self.served += sum(each.known for each in found)
        self.evicted += sum(len(each.again[0]) for each in found)
        for name, each in zip(self.tables, found, strict=True):
            self.read[name] += len(each.rows)
            self.given_anew[name] += len(each.again[0])
        again = {name: each.again for name, each in zip(self.tables, found, strict=True) if len(each.again[0])}
        if again:
            draw_anew(self._shards_of(tables), self.start, self.seed, again)

    def _shards_of(self, tables: nn.Module) -> dict[str, list[RowShard]]:
        if self._shards is None or self._shards[0] is not tables:
            self._shards = tables, shards_in(tables)
        return self._shards[1]

    def _check(self, table: str, taken: Taken) -> None:
        if taken.missing:
            size = self.tables[table].size
            raise UsageError(
                f"step {self.step:,} reads more different ids of table '{table}' than rows are there for them: "
                f"{taken.missing:,} of a part of {size:,} rows found none, and a row that the batch reads is not given "
                "away; give the table more rows, or the run smaller batches"
            )


def file_of(table: str) -> str:
    """Name of the file with a table's ids in the folder of a trained model."""
    return f"ids.{quote(table, safe='')}.safetensors"


def _put(ids: Ints, spans: Sequence[slice], rows: Ints) -> None:
    """Overwrite the ids of some features with rows."""
    first = 0
    for span in spans:
        ids[span] = rows[first : first + span.stop - span.start]
        first += span.stop - span.start


def _read(table: IdRows, folder: Path, name: str) -> None:
    """Read the ids of this rank's parts of a table from a trained model."""
    from recsmith.training.job.export import opened_weights
    from recsmith.training.stores.protocol import WholeTensor

    with opened_weights(folder / file_of(name), {name: WholeTensor(torch.int64, (table.rows,))}) as opened:
        there: Any = opened.get_slice(name)
        for first, here in table.id_of_rows():
            table.put(first, there[first : first + len(here)].numpy())
    table.made()
