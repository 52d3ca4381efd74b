"""Towers on several hosts: the process groups that ids and outputs cross, and how a tower is sharded on its host.

Semantic-preserving tower transform (Luo et al., MLSys 2024, section 3): a rank sends the ids of each tower to the rank
with the same local number on the tower's host, over groups that have one rank per host. Tables are looked up among the
ranks of a host, and outputs are sent back the same way. Ranks with different local numbers on different hosts exchange
nothing.

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

WITHIN = {"table_row_wise": "row_wise", "table_column_wise": "column_wise"}  # names among a host's ranks


@dataclass(frozen=True)
class TowerHosts:
    """This rank's host.

    within: group of the ranks of the host. across: group of the ranks with its local number on all hosts.
    """

    host: int
    within: Any
    across: Any

    @classmethod
    def of(cls, plan: Plan, device: torch.device) -> "TowerHosts":
        """The hosts as the launcher started them, which must be as in the plan.

        Raises:
            UsageError: hosts have different numbers of ranks, or not the number in the plan.
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
    """Sends ids to the hosts of their towers, and outputs to the ranks of their samples."""

    def __init__(self, hosts: TowerHosts, tables: TowerTables, device: torch.device, codecs: Any) -> None:
        self.host = hosts.host
        features = [sum(len(config.feature_names) for config in tower) for tower in tables.towers]
        self.ids = KJTAllToAll(hosts.across, features)
        codec = (codecs or {}).get(CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL.name)
        self.steps = self.forward = self.backward = 0
        self.widths = tables.interaction.widths
        self.outputs = PooledEmbeddingsAllToAll(hosts.across, tables.interaction.widths, device, codecs=codec)

    def to_towers(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """The ids of this host's tower, for the samples of the peers of this rank on all hosts (H x B)."""
        return self.ids(features).wait().wait()

    def to_samples(self, outputs: torch.Tensor) -> torch.Tensor:
        """The outputs of all towers (B, all columns) for this rank's samples. outputs: of a tower (H x B, columns)."""
        if torch.is_grad_enabled():
            self._count(len(outputs))
        return self.outputs(outputs.contiguous()).wait()

    def _count(self, samples: int) -> None:
        """Count the numbers sent to other hosts in a step: outputs, and gradients of received ones. samples: H x B."""
        mine, hosts = self.widths[self.host], len(self.widths)
        here = samples // hosts
        self.steps += 1
        self.forward += (samples - here) * mine
        self.backward += here * (sum(self.widths) - mine)


class TowerSharder(EmbeddingBagCollectionSharder):
    """Shards the tables of this host's tower among the ranks of the host, and omits tables of other towers."""

    def __init__(self, hosts: TowerHosts, names: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self.hosts, self.names = hosts, frozenset(names)

    def shard(
        self, module: EmbeddingBagCollection, params: Mapping[str, ParameterSharding], env: ShardingEnv,
        device: torch.device | None = None, module_fqn: str | None = None,
    ) -> Any:  # fmt: skip
        """Shard the tower's collection on its host. Sharding specs keep the rank numbers of the whole job."""
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

    tables: names of the tables of this host's tower. local: names of the parameters that only this host has.
    """

    hosts: TowerHosts
    tables: tuple[str, ...]
    local: tuple[str, ...]

    def sharders(self, usual: Sequence[Any]) -> list[Any]:
        """The sharders of the model. usual: those of a model without towers."""
        first, *rest = usual
        mine = TowerSharder(
            self.hosts, self.tables, fused_params=first.fused_params, qcomm_codecs_registry=first.qcomm_codecs_registry
        )
        return [mine, *rest]

    def average(self, model: nn.Module) -> dict[nn.Parameter, list[Any]]:
        """Average the gradients of a tower's module over its host as soon as each is computed.

        Returns the process group across hosts for each of these parameters. model: the sharded model, unwrapped.
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
    """Give each host its tower before the model is sharded; None if a model has no towers, or the job one host.

    codecs: TorchRec's codecs of pooled embeddings.
    """
    found = list(towers_in(model))
    if not found or plan.cluster.hosts == 1:
        return None
    hosts = TowerHosts.of(plan, device)
    for _, tables in found:
        tables.place(TowerExchange(hosts, tables, device, codecs))
    names = tuple(config.name for _, tables in found for config in tables.towers[hosts.host])
    return PlacedTowers(hosts, names, tuple(sorted(host_parameters(model))))
