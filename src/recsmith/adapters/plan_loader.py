"""Makes TorchRec's own planner return the plan of a RecSmith file instead of searching (its `plan_loader`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import PlanLoader, Shard, ShardingOption
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ParameterSharding, ShardingPlan

from recsmith._types import Source
from recsmith.adapters.convert import to_parameter_constraints, to_sharding_plan
from recsmith.adapters.topology import to_topology
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan, load_plan

INSTEAD = "give the plan itself to DistributedModelParallel, as to_sharding_plan makes it"


class PlanFileLoader(PlanLoader):
    """A plan loader with which TorchRec's EmbeddingShardingPlanner returns a RecSmith plan instead of searching.

        loader = PlanFileLoader("plan.json", model, sharders)
        planner = EmbeddingShardingPlanner(topology=topology, batch_size=batch_size,
                                           constraints=loader.constraints, plan_loader=loader)

    The planner looks up the plan's choices among its own options, so it must be given the loader's `constraints`; other
    fields of tables can be added to them. Costs and memory in its report are TorchRec's estimates for this plan.

    Args:
        plan: a Plan, or the path of a plan file.
        module: the model whose tables the plan places.
        sharders: the sharders of the job; TorchRec's defaults by default.

    Raises:
        UsageError: the plan is for a 2D job.
        PlanMismatch: plan and module disagree about a table, the placements cannot be run, or TorchRec's planner does
            not enumerate a choice, such as row-wise shards on a CPU, although TorchRec can run it.
    """

    def __init__(
        self, plan: Plan | Source, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None
    ) -> None:
        self.plan = plan if isinstance(plan, Plan) else load_plan(plan)
        if self.plan.cluster.replication is not None:
            raise UsageError(
                "the plan is for a 2D job, which TorchRec's plan_loader does not know; use to_sharding_plan"
            )
        self._module, self._sharders = module, list(sharders or get_default_sharders())
        self._wanted: ShardingPlan = to_sharding_plan(self.plan, module, sharders=self._sharders)
        self.constraints: dict[str, ParameterConstraints] = {
            name: replace(each, min_partition=None) for name, each in to_parameter_constraints(self.plan).items()
        }
        self._chosen = self._choices()

    def load(self) -> dict[int, ShardingOption]:
        """The plan's option of every table, by the hash under which TorchRec looks it up."""
        return self._chosen

    def _choices(self) -> dict[int, ShardingOption]:
        """TorchRec's options with the plan's types, kernels and shards, and TorchRec's estimates of them.

        The key of an option is the hash that it had with TorchRec's own shards, because the planner looks up the
        options that it enumerates itself.
        """
        topology, size = to_topology(self.plan.cluster), self.plan.workload.batch_size
        enumerator = EmbeddingEnumerator(topology=topology, batch_size=size, constraints=self.constraints)
        try:
            options = enumerator.enumerate(self._module, self._sharders)
        except RuntimeError as error:  # TorchRec enumerates no option for a table
            raise PlanMismatch(f"TorchRec's planner: {str(error).partition('. ')[0]}; {INSTEAD}") from None
        chosen = [self._choice(path, name, options) for path, name in self._tables()]
        made = {option.storage_hash(): option for option in chosen}
        for option in chosen:
            option.shards = _shards(_parameters(self._wanted.plan[option.path])[option.name]) or _copies(option)
        enumerator.populate_estimates(chosen)
        return made

    def plan_context_hash(self) -> None:
        """None: the plan and the model were compared when the loader was made."""

    def get_plan_id(self) -> str:
        """The plan's digest."""
        return self.plan.digest

    def _tables(self) -> list[tuple[str, str]]:
        return [(path, name) for path, module in self._wanted.plan.items() for name in _parameters(module)]

    def _choice(self, path: str, name: str, options: Sequence[ShardingOption]) -> ShardingOption:
        """TorchRec's option of a table with the plan's sharding type and kernel."""
        wanted = _parameters(self._wanted.plan[path])[name]
        choice = (path, name, wanted.sharding_type, wanted.compute_kernel)
        for each in options:
            if (each.path, each.name, each.sharding_type, each.compute_kernel) == choice:
                return each
        raise PlanMismatch(
            f"table '{name}' is {wanted.sharding_type} with kernel {wanted.compute_kernel} in the plan, which "
            f"TorchRec's planner does not enumerate; {INSTEAD}"
        )


def _copies(option: ShardingOption) -> list[Shard]:
    """The shards of a data_parallel table: a full copy on every rank."""
    return [replace(shard, rank=rank) for rank, shard in enumerate(option.shards)]


def _parameters(module: object) -> Mapping[str, ParameterSharding]:
    assert isinstance(module, dict)
    return module


def _shards(parameter: ParameterSharding) -> list[Shard]:
    spec = parameter.sharding_spec
    metadata: list[ShardMetadata] = list(getattr(spec, "shards", ()))
    ranks = [each.placement.rank() for each in metadata]  # type: ignore[union-attr]
    return [
        Shard(size=list(each.shard_sizes), offset=list(each.shard_offsets), rank=rank)
        for each, rank in zip(metadata, ranks, strict=True)
    ]
