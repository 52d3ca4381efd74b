"""Towers on hosts: which process groups ids and outputs cross, and how a tower's tables are sharded on its host.

Semantic-preserving tower transform (Luo et al., MLSys 2024, section 3): a rank sends the ids of each tower to the rank
of the same number on the tower's host, over groups of one rank a host; tables are looked up among the ranks of a host;
outputs go back the same way. Nothing is sent between ranks of other numbers on other hosts.

H hosts, B samples of a rank
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, KeyedJaggedTensor
from torchrec.distributed.comm import intra_and_cross_node_pg
from torchrec.distributed.dist_data import KJTAllToAll, PooledEmbeddingsAllToAll
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import CommOp, ParameterSharding, ShardingEnv

from recsmith.adapters.torchrec_planner import quiet
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.training.stores.protocol import HostParts, host_parameters, towers_in
from recsmith.training.systems.towers.tables import TowerTables

WITHIN = {"table_row_wise": "row_wise", "table_column_wise": "column_wise"}  # what types of a host are among its ranks


@dataclass(frozen=True)
class TowerHosts:
    """This rank's host among those of a job. within: the ranks of the host; across: those of its number on all."""

    host: int
    within: Any
    across: Any

    @classmethod
    def of(cls, plan: Plan, device: torch.device) -> "TowerHosts":
        """As the launcher started them, which must be as the plan has them.

        Raises:
            UsageError: hosts do not have equally many ranks, or other numbers than in the plan.
        """
        with quiet():
            within, across = intra_and_cross_node_pg(device)
        local, wanted = dist.get_world_size(within), plan.cluster.local_world_size
        if local != wanted:
            raise UsageError(
                f"the plan has {plan.cluster.hosts} hosts of {wanted} ranks, this job {dist.get_world_size()} ranks "
                f"on hosts of {local} (LOCAL_WORLD_SIZE, which must divide them); start as many ranks on every "
                "host, or plan for these hosts"
            )
        return cls(dist.get_rank() // local, within, across)

    @property
    def first_rank(self) -> int:
        """The first rank of this host."""
        return self.host * dist.get_world_size(self.within)


class TowerExchange:
    """How ids reach the hosts of their towers, and outputs the ranks of their samples."""

    def __init__(self, hosts: TowerHosts, tables: TowerTables, device: torch.device, codecs: Any) -> None:
        self.host = hosts.host
        features = [sum(len(config.feature_names) for config in tower) for tower in tables.towers]
        self.ids = KJTAllToAll(hosts.across, features)
        codec = (codecs or {}).get(CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL.name)
        self.steps = self.forward = self.backward = 0
        self.widths = tables.interaction.widths
        self.outputs = PooledEmbeddingsAllToAll(hosts.across, tables.interaction.widths, device, codecs=codec)

    def to_towers(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """The ids of this host's tower, of the samples of its peers on all hosts (H x B)."""
        return self.ids(features).wait().wait()

    def to_samples(self, outputs: torch.Tensor) -> torch.Tensor:
        """What all towers made (B, all columns) of this rank's samples. outputs: of its tower (H x B, columns)."""
        if torch.is_grad_enabled():
            self._count(len(outputs))
        return self.outputs(outputs.contiguous()).wait()

    def _count(self, samples: int) -> None:
        """Numbers that go to other hosts in a step: outputs, and gradients of what came. samples: H x B."""
        mine, hosts = self.widths[self.host], len(self.widths)
        here = samples // hosts
        self.steps += 1
        self.forward += (samples - here) * mine
        self.backward += here * (sum(self.widths) - mine)


class TowerSharder(EmbeddingBagCollectionSharder):
    """Shards the tables of this host's tower among the ranks of the host, and leaves those of the others to theirs."""

    def __init__(self, hosts: TowerHosts, names: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self.hosts, self.names = hosts, frozenset(names)

    def shard(
        self, module: EmbeddingBagCollection, params: Mapping[str, ParameterSharding], env: ShardingEnv,
        device: torch.device | None = None, module_fqn: str | None = None,
    ) -> Any:  # fmt: skip
        """The collection of the tower alone. Shards keep the numbers of their ranks in the job."""
        configs = [config for config in module.embedding_bag_configs() if config.name in self.names]
        tower = EmbeddingBagCollection(configs, is_weighted=module.is_weighted(), device=torch.device("meta"))
        for config in configs:
            tower.embedding_bags[config.name] = module.embedding_bags[config.name]
        placed = {config.name: self._on_host(params[config.name]) for config in configs}
        here = ShardingEnv.from_process_group(self.hosts.within)
        return super().shard(tower, placed, here, device, module_fqn)  # type: ignore[arg-type]

    def _on_host(self, placed: ParameterSharding) -> ParameterSharding:
        ranks = [rank - self.hosts.first_rank for rank in placed.ranks or []]
        kind = placed.sharding_type
        return replace(placed, sharding_type=WITHIN.get(kind, kind), ranks=ranks)


@dataclass(frozen=True)
class PlacedTowers(HostParts):
    """The towers of a model that is sharded over several hosts.

    tables: of this host's tower. local: names of parameters that this host alone has.
    """

    hosts: TowerHosts
    tables: tuple[str, ...]
    local: tuple[str, ...]

    def sharders(self, usual: Sequence[Any]) -> list[Any]:
        """The sharders of the model. usual: of one without towers."""
        first, *rest = usual
        mine = TowerSharder(
            self.hosts, self.tables, fused_params=first.fused_params, qcomm_codecs_registry=first.qcomm_codecs_registry
        )
        return [mine, *rest]

    def average(self, model: nn.Module) -> dict[nn.Parameter, list[Any]]:
        """Average the gradients of a tower's module over its host, as they come; the group over which towers lie.

        model: the sharded one, without what is wrapped around it.
        """
        mine = [parameter for name, parameter in model.named_parameters() if name in self.local]
        for parameter in mine:
            parameter.register_post_accumulate_grad_hook(self._mean)
        return {parameter: [self.hosts.across] for parameter in mine}

    def _mean(self, parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, group=self.hosts.within)
        parameter.grad /= dist.get_world_size(self.hosts.within)


def place_towers(model: nn.Module, plan: Plan, device: torch.device, codecs: Any) -> PlacedTowers | None:
    """Give each host its tower, before the model is sharded; None where a model has none, or a job one host.

    codecs: of pooled embeddings, as TorchRec has them.
    """
    found = list(towers_in(model))
    if not found or plan.cluster.hosts == 1:
        return None
    hosts = TowerHosts.of(plan, device)
    for _, tables in found:
        tables.place(TowerExchange(hosts, tables, device, codecs))
    names = tuple(config.name for _, tables in found for config in tables.towers[hosts.host])
    return PlacedTowers(hosts, names, tuple(sorted(host_parameters(model))))
