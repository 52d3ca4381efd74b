"""Embedding tables in towers (Luo et al., "Disaggregated Multi-Tower", MLSys 2024), in torch.

A tower consists of some tables and a small module of its own, whose output has fewer columns. On one host, all towers
are looked up in one collection, and their modules are dense layers like any other. If each tower has a host, ids are
sent to the tower's host, its tables are looked up among the ranks of that host alone, and only outputs cross hosts
(hosts.py). Both compute the same result, and their parameters have the same names.

B samples, F features of a tower, D columns of a table, T towers
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor, KeyedTensor
from torchrec.modules.crossnet import LowRankCrossNet
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.training.systems.towers.settings import ACROSS, Towers
from recsmith.training.tables.plain import plain
from recsmith.training.tables.protocol import TableModule


class TowerTables(nn.Module, TableModule):
    """Embedding tables in towers; a model sees one EmbeddingBagCollection of narrower tables.

    Settings are those of Towers. hosts: the exchange of ids and outputs between hosts, if each host has a tower.
    """

    settings_noun = Towers
    reads_by_name = True

    def __init__(
        self, configs: Sequence[EmbeddingBagConfig], device: torch.device, is_weighted: bool = False,
        *, ratio: int | Literal["auto"], towers: tuple[tuple[str, ...], ...],
        module: Literal["linear", "cross"] = "linear", rank: int = 64,
    ) -> None:  # fmt: skip
        super().__init__()
        settings = Towers(ratio=ratio, towers=towers, module=module, rank=rank)
        settings.check_tables({config.name: config.embedding_dim for config in configs})
        by_name = {config.name: config for config in configs}
        self.configs, self.ratio = tuple(configs), settings.factor
        self.towers = tuple(tuple(by_name[name] for name in names) for names in towers)
        self.tables: Any = plain([config for tower in self.towers for config in tower], device, is_weighted)
        self.interaction = TowerModules(self.towers, configs, settings)
        self.hosts: Any = None

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """TorchRec's configs as the model sees them: each table with the number of columns that leave its tower."""
        return [replace(config, embedding_dim=config.embedding_dim // self.ratio) for config in self.configs]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up features: the outputs (B, D / ratio) of each."""
        if self.hosts is None:
            return self.interaction(self.tables(features))
        mine = self.interaction.columns(self.hosts.host, self.tables(self.hosts.to_towers(features)))
        return self.interaction.keyed(self.hosts.to_samples(mine))

    def place(self, hosts: Any) -> None:
        """Keep only the module of the tower of this rank's host. hosts: the exchange between hosts."""
        self.hosts = hosts
        for number in range(len(self.towers)):
            if number != hosts.host and str(number) in self.interaction:
                del self.interaction[str(number)]

    def of_this_host(self) -> list[str]:
        """Names of the parameters that only the ranks of this host have."""
        names = (name for name, _ in self.interaction.named_parameters())
        return [] if self.hosts is None else [f"interaction.{name}" for name in names]

    def stored(self) -> list[BaseEmbeddingConfig]:
        """The configs of the tables with all their columns, tower by tower."""
        return [config for tower in self.towers for config in tower]

    def names(self) -> list[str]:
        """Names of all tables."""
        return [config.name for config in self.configs]

    def vectors(self, name: str) -> torch.Tensor | None:
        """The weights of a table, before any module; None if it is not on this rank."""
        bags: Any = self.tables.embedding_bags
        return bags[name].weight.detach() if name in bags else None

    def why_not_ahead(self) -> str | None:
        """Why ids cannot be sent ahead of their batch: towers on several hosts exchange ids themselves; else None."""
        return None if self.hosts is None else ACROSS


class TowerModules(nn.ModuleDict):
    """The learned modules of towers, by tower number; none if the ratio is 1.

    It holds no tables, so TorchRec's pipelines run it as a whole.
    """

    def __init__(
        self, towers: Sequence[Sequence[EmbeddingBagConfig]], configs: Sequence[EmbeddingBagConfig], settings: Towers
    ) -> None:
        found = [sum(width for _, width in _widths(tower)) for tower in towers]
        modules = {str(number): _module(columns, settings) for number, columns in enumerate(found)}
        super().__init__(modules if settings.factor > 1 else {})
        self.inputs = [[name for name, _ in _widths(tower)] for tower in towers]
        self.outputs = [[(name, width // settings.factor) for name, width in _widths(tower)] for tower in towers]
        self.order = [name for name, _ in _widths(configs)]

    @property
    def widths(self) -> list[int]:
        """The number of columns that leave each tower."""
        return [sum(width for _, width in outputs) for outputs in self.outputs]

    def columns(self, number: int, pooled: KeyedTensor) -> torch.Tensor:
        """Apply one tower's module to the pooled vectors of its features: (B, sum of its D / ratio)."""
        found = pooled.to_dict()
        flat = torch.cat([found[name] for name in self.inputs[number]], dim=1)
        return self[str(number)](flat).float() if str(number) in self else flat

    def keyed(self, columns: torch.Tensor) -> KeyedTensor:
        """Outputs by feature, in the model's order. columns: the outputs of all towers, tower by tower (B, all)."""
        outputs = [each for tower in self.outputs for each in tower]
        names, widths = [name for name, _ in outputs], dict(outputs)
        if names != self.order:
            found = dict(zip(names, columns.split(list(widths.values()), dim=1), strict=True))
            columns = torch.cat([found[name] for name in self.order], dim=1)
        return KeyedTensor(self.order, [widths[name] for name in self.order], columns)

    def forward(self, pooled: KeyedTensor) -> KeyedTensor:
        """Apply the modules of all towers, which are on one host."""
        return self.keyed(torch.cat([self.columns(number, pooled) for number in range(len(self.inputs))], dim=1))


def _widths(configs: Sequence[EmbeddingBagConfig]) -> list[tuple[str, int]]:
    """(feature, columns) of each feature of these tables."""
    return [(name, config.embedding_dim) for config in configs for name in config.feature_names]


def _module(columns: int, settings: Towers) -> nn.Module:
    """A layer from all columns of a tower to the columns that leave it."""
    linear = nn.Linear(columns, columns // settings.factor)
    if settings.module != "cross":
        return linear
    return nn.Sequential(LowRankCrossNet(columns, 1, settings.rank), linear)
