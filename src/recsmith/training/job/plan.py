"""The plan of a job, read from its file, or made for the model, its data and these ranks; the same on every rank."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingConfig
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.types import PlannerError

from recsmith.adapters.convert import from_sharding_plan
from recsmith.adapters.drop_in_planner import RecSmithPlanner
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.adapters.topology import device_type, to_topology
from recsmith.adapters.torchrec_planner import quiet
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster
from recsmith.costs.neural.model import NeuralCostModel
from recsmith.data import Batch
from recsmith.data.deduplication import deduplicated
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, UsageError
from recsmith.jobs.local_cluster import this_cluster
from recsmith.planning.simulate import price
from recsmith.plans import Plan, load_plan, plan_from_raw, plan_to_raw
from recsmith.problems import Constraints, Space
from recsmith.training.collectives import collectives_of, sharders_of
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan_rules import check_loadable, plan_limits
from recsmith.training.run import MADE_HERE, Run
from recsmith.training.run.refusals import check_together, device_parts
from recsmith.training.seams.registry import batches_of_a_step
from recsmith.training.sources import first_batch
from recsmith.training.tables.plain import configs_of, features_of
from recsmith.units import counted
from recsmith.workloads import AccessProfile, Workload
from recsmith.workloads.optimizers import OptimizerName
from recsmith.workloads.row_blocks import access_of_ids

TORCHREC = "torchrec"
LEARNED_ON_CPU = "neural:cpu"  # learned cost model of FBGEMM's CPU kernels, for some optimizers and data types
UNSPLIT = Space(types=("table_wise", "data_parallel"))  # on gloo, split tables are slower than any cost model predicts
COUNTED = 1024  # samples in which ids are counted if the data does not give the pooling factor


def agreed_plan(parts: Unsharded, before: Plan | None, ranks_per_host: int) -> Plan:
    """The plan of this job, made or read by rank 0. before: the plan of its checkpoint, kept if it still fits."""
    return _of_rank_0(lambda: plan_to_go_on(parts, before, dist.get_world_size(), ranks_per_host))


def agreed_anew(parts: Unsharded, running: Plan, ranks_per_host: int, proposed: Plan | None) -> Plan:
    """Another plan for a running job, agreed by all ranks: the proposed one, or one made now by rank 0.

    Raises:
        UsageError: the state of the running plan cannot be loaded under the other plan.
        Infeasible, NoPlanFound: there is no other plan.
    """

    def make() -> Plan:
        run = replace(parts.run, plan="auto")
        plan = proposed or plan_here(replace(parts, run=run), dist.get_world_size(), ranks_per_host, running)
        check_loadable(running, plan)
        return plan

    return _of_rank_0(make)


def _of_rank_0(make: Callable[[], Plan]) -> Plan:
    """The plan that rank 0 makes, on every rank."""
    return plan_from_raw(from_rank_0(lambda: plan_to_raw(make())), "rank 0's plan")


def plan_to_go_on(parts: Unsharded, before: Plan | None, ranks: int, ranks_per_host: int | None = None) -> Plan:
    """The plan of a run: its checkpoint's, if that still fits and no plan file is given; otherwise read or made here.

    ranks_per_host: None: all ranks are on one host.
    """
    if before is not None and parts.run.plan in MADE_HERE and before.cluster.job_world_size == ranks:
        return before
    return plan_here(parts, ranks, ranks_per_host or ranks, before)


def plan_here(parts: Unsharded, ranks: int, ranks_per_host: int, before: Plan | None = None) -> Plan:
    """The plan of a run for `ranks` ranks: from its file, or made now in this process.

    before: plan of the checkpoint that training continues from; a plan made now can load its state, and keeps the size
    of its sharding groups if there are several.

    Raises:
        PlanMismatch: the file's plan is for another number of ranks or other tables.
        UsageError: tables cannot have their optimizer on this kind of device.
        Infeasible, NoPlanFound: the tables do not fit on these ranks.
    """
    run, model, sample = parts.run, parts.task, first_batch(parts.source, COUNTED)
    if run.plan not in MADE_HERE:
        return plan_of_file(run.plan, ranks)
    check_together(device_parts(run, device_type()))
    cluster, batch_size = this_cluster(ranks, ranks_per_host), _batch_size(run, ranks)
    lookups = _lookups(parts, sample, batch_size)
    if run.plan == TORCHREC:
        return plan_as_torchrec(run, model, cluster, lookups, batch_size)
    names = [config.name for config in configs_of(model) if isinstance(config, EmbeddingConfig)]
    limits = plan_limits(run, before, sequences=names, device=device_type(), hosts=cluster.hosts)
    return _auto_plan(run, model, cluster, batch_size, lookups, limits, _access(parts), before)


def _access(parts: Unsharded) -> dict[str, AccessProfile]:
    """How often the rows of each table are read, counted in samples from several places in the data."""
    return access_of_tables(parts.task, first_batch(parts.source, COUNTED, shuffle=True, window=16 * COUNTED))


def tables_of_run(parts: Unsharded, ranks: int) -> Workload:
    """The tables of a run as `ranks` ranks look them up, with the id counts that an auto plan uses."""
    run, model, sample = parts.run, parts.task, first_batch(parts.source, COUNTED)
    batch_size, access = _batch_size(run, ranks), _access(parts)
    made = _workload(run, model, batch_size, _lookups(parts, sample, batch_size))
    return replace(
        made, tables=tuple(replace(table, access=access.get(table.name, table.access)) for table in made.tables)
    )


def _batch_size(run: Run, ranks: int) -> int:
    """The most samples that a rank looks up at once."""
    return run.data.local_batch_size(ranks) * batches_of_a_step(run)


def _workload(
    run: Run, model: nn.Module, batch_size: int, lookups: Mapping[str, ParameterConstraints] | None = None
) -> Workload:
    """The tables of a model. lookups: ids per bag of each feature, by table."""
    sharders, optimizer = sharders_of(collectives_of(run.comms)), run.optimizers.sparse.name
    return read_workload(
        model, sharders, batch_size=batch_size, constraints=lookups, optimizer=optimizer,
        table_optimizers=optimizers_of(run, model),
    )  # fmt: skip


def optimizers_of(run: Run, model: nn.Module) -> dict[str, OptimizerName]:
    """The optimizer of each table of a model."""
    return {config.name: run.optimizers.sparse.of(config.name).name for config in configs_of(model)}


def _auto_plan(
    run: Run, model: nn.Module, cluster: Cluster, batch_size: int, lookups: dict[str, ParameterConstraints],
    limits: Constraints, access: dict[str, AccessProfile], before: Plan | None,
) -> Plan:  # fmt: skip
    """RecSmith's plan; on CPU by the learned cost model, with tables unsplit if memory allows it."""
    groups = groups_as(before, cluster.world_size)

    def plan(cost_model: str | None = None, space: Space | None = None) -> Plan:
        planner = RecSmithPlanner(
            cluster, batch_size=batch_size, constraints=lookups, optimizer=run.optimizers.sparse.name, limits=limits,
            reserve_bytes=0, seed=run.seed, cost_model=cost_model, space=space, index_dedup=run.model.index_dedup,
            access=access, table_optimizers=optimizers_of(run, model), **groups,
        )  # fmt: skip
        with warnings.catch_warnings():  # warnings about inexactly split columns, which keep_exact forbids
            warnings.simplefilter("ignore")
            return planner.make(model, sharders_of(collectives_of(run.comms))).plan

    if device_type() != "cpu":
        return plan()
    known = NeuralCostModel(LEARNED_ON_CPU).knows(_workload(run, model, batch_size))
    learned = LEARNED_ON_CPU if known else None
    try:
        return plan(learned, UNSPLIT)
    except (Infeasible, NoPlanFound):  # a table is larger than the memory of a rank
        return plan(learned)


def groups_as(before: Plan | None, ranks: int) -> dict[str, Any]:
    """Arguments that give the planner the sharding groups of an earlier plan, if the ranks form several such groups."""
    made = before and before.cluster.replication
    if before is None or made is None or ranks % before.cluster.world_size or ranks == before.cluster.world_size:
        return {}
    return {
        "sharding_group_size": before.cluster.world_size, "steps_per_sync": made.steps_per_sync,
        "use_inter_host_allreduce": made.use_inter_host_allreduce, "fully_sharded": made.fully_sharded,
    }  # fmt: skip


def plan_of_file(file: str, ranks: int | None = None) -> Plan:
    """The plan of a file, if a run can train under it. ranks: number of ranks it must be for; None: any."""
    plan = load_plan(file)
    if ranks is not None and plan.cluster.job_world_size != ranks:
        raise PlanMismatch(
            f"'{file}' is a plan for {counted(plan.cluster.job_world_size, 'rank')} and the job has {ranks}; start as "
            "many, or plan for this cluster"
        )
    if plan.cluster.fully_sharded:
        raise UsageError(
            f"'{file}' is a plan for fully sharded replicas, which `recsmith train` does not train: give it to "
            "DMPCollection of your own job, or plan without --fully-sharded"
        )
    return plan


def _lookups(parts: Unsharded, sample: Batch, batch_size: int) -> dict[str, ParameterConstraints]:
    """Ids per bag of each feature that the tables look up: given by the data, or else counted in the sample.

    For deduplicated features, the batch consists of their distinct rows.
    """
    features = features_of(parts.task)
    known = {feature.name: feature.pooling_factor for feature in parts.source.schema.features}
    bags, repeated = features.bags(sample), features.repeats

    def factor(feature: str) -> float:
        counted = known.get(feature)
        found = float(np.mean(bags[feature].lengths)) if counted is None else counted
        of_part, own = repeated.get(feature, (1.0, 1.0))
        return found * of_part / own

    return {
        config.name: ParameterConstraints(
            pooling_factors=[factor(feature) for feature in config.feature_names],
            batch_sizes=[math.ceil(batch_size / repeated[feature][0]) for feature in config.feature_names]
            if config.feature_names[0] in repeated
            else None,
        )
        for config in configs_of(parts.task)
    }


def access_of_tables(model: nn.Module, sample: Batch) -> dict[str, AccessProfile]:
    """How often the rows of tables are read, counted in a batch of the data; which rows these are is left open.

    Tables of raw ids are left out, because these have no rows yet. If only distinct bags of a feature are looked up,
    those are counted.
    """
    features, found = features_of(model), dict[str, AccessProfile]()
    bags = features.bags(deduplicated(sample, [(name,) for name in features.repeats if name in sample.ids]))
    for config in configs_of(model):
        if not {*config.feature_names} & {*features.raw}:
            ids = np.concatenate([bags[feature].values for feature in config.feature_names])
            counted = access_of_ids(ids, config.num_embeddings)
            if counted is not None:
                found[config.name] = counted.scattered()
    return found


def plan_as_torchrec(
    run: Run, model: nn.Module, cluster: Cluster, lookups: Mapping[str, ParameterConstraints], batch_size: int
) -> Plan:
    """TorchRec's plan for a model, priced by RecSmith; NoPlanFound if TorchRec's planner finds none."""
    workload, sharders = _workload(run, model, batch_size, lookups), sharders_of(collectives_of(run.comms))
    try:
        with quiet():
            planner = EmbeddingShardingPlanner(
                topology=to_topology(cluster), batch_size=batch_size, constraints=dict(lookups), stats=[], debug=False
            )
            found = planner.plan(model, sharders)
    except PlannerError as error:
        raise NoPlanFound(f"TorchRec's planner: {str(error).splitlines()[0][:200]}; use plan: auto") from None
    return replace(price(workload, cluster, from_sharding_plan(found, workload, cluster)), planner=TORCHREC)
