"""The plan of a run: read from its file, or made for the model, its data and this job when it starts."""

import math
import warnings
from dataclasses import replace

import numpy as np
from torch import nn
from torchrec import EmbeddingConfig
from torchrec.distributed.planner import ParameterConstraints

from recsmith.adapters.drop_in_planner import RecSmithPlanner
from recsmith.adapters.topology import device_type
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster
from recsmith.costs.neural.model import NeuralCostModel
from recsmith.data import Batch, DataSchema
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, UsageError
from recsmith.plans import Plan, load_plan
from recsmith.problems import Constraints, Space, TableRule
from recsmith.training.collectives import collectives_of, sharders_of
from recsmith.training.resharding import loadable_rules
from recsmith.training.run import Run
from recsmith.training.tables.plain import configs_of, features_of
from recsmith.training.this_cluster import this_cluster
from recsmith.training.torchrec_plans import TORCHREC, plan_as_torchrec

MADE_HERE = ("auto", TORCHREC)  # plans that no file holds
LEARNED_ON_CPU = "neural:cpu"  # of FBGEMM's kernels, with the caches of a processor; of some optimizers and data types
UNSPLIT = Space(types=("table_wise", "data_parallel"))  # gloo makes split tables slower than any cost model says
SEQUENCES_ON_CPU = ("table_wise", "column_wise", "row_wise")  # FBGEMM 1.8 pools copies of sequence tables there


def make_plan(
    run: Run, model: nn.Module, schema: DataSchema, sample: Batch, *, ranks: int, ranks_per_host: int,
    before: Plan | None = None,
) -> Plan:  # fmt: skip
    """The plan that a run trains under: of its file, or one made now.

    sample: a batch of the data, from which ids per sample are counted where the data does not say them. before: plan of
    the checkpoint that training goes on from, on another number of ranks; what is made now can load its state.

    Raises:
        PlanMismatch: the file's plan is for another number of ranks or other tables.
        Infeasible, NoPlanFound: the tables do not fit on these ranks.
    """
    if run.plan not in MADE_HERE:
        return _plan_of_file(run.plan, ranks)
    cluster, batch_size = this_cluster(ranks, ranks_per_host), run.data.local_batch_size(ranks)
    lookups = _lookups(model, schema, sample, batch_size)
    if run.plan != TORCHREC:
        return _auto_plan(run, model, cluster, batch_size, lookups, _limits(run, before, model))
    return plan_as_torchrec(
        model,
        sharders_of(collectives_of(run.comms)),
        cluster,
        lookups,
        batch_size=batch_size,
        optimizer=run.optimizers.sparse.name,
    )


def _auto_plan(
    run: Run, model: nn.Module, cluster: Cluster, batch_size: int, lookups: dict[str, ParameterConstraints],
    limits: Constraints,
) -> Plan:  # fmt: skip
    """RecSmith's plan; on CPU under the learned cost model, of tables that stay whole where memory allows it."""
    sharders, optimizer = sharders_of(collectives_of(run.comms)), run.optimizers.sparse.name

    def plan(cost_model: str | None = None, space: Space | None = None) -> Plan:
        planner = RecSmithPlanner(
            cluster,
            batch_size=batch_size,
            constraints=lookups,
            optimizer=optimizer,
            limits=limits,
            reserve_bytes=0,
            seed=run.seed,
            cost_model=cost_model,
            space=space,
        )
        with warnings.catch_warnings():  # of columns that are split inexactly: keep_exact forbids them
            warnings.simplefilter("ignore")
            return planner.make(model, sharders).plan

    if device_type() != "cpu":
        return plan()
    workload = read_workload(model, sharders, batch_size=batch_size, optimizer=optimizer)
    learned = LEARNED_ON_CPU if NeuralCostModel(LEARNED_ON_CPU).knows(workload) else None
    try:
        return plan(learned, UNSPLIT)
    except (Infeasible, NoPlanFound):  # a table is larger than the memory of a rank
        return plan(learned)


def _limits(run: Run, before: Plan | None, model: nn.Module) -> Constraints:
    """No plan changes what training computes, each can be run with the run's codecs, and load the state of `before`."""
    carried = collectives_of(run.comms).sharding_types()
    rules = [TableRule(tables="*", sharding_types=carried)] if carried else []
    if device_type() == "cpu":
        names = [config.name for config in configs_of(model) if isinstance(config, EmbeddingConfig)]
        rules += [TableRule(tables=name, sharding_types=SEQUENCES_ON_CPU) for name in names]
    return Constraints(keep_exact=True, rules=(*rules, *(loadable_rules(before) if before else ())))


def _plan_of_file(file: str, ranks: int) -> Plan:
    plan = load_plan(file)
    if plan.cluster.job_world_size != ranks:
        raise PlanMismatch(
            f"'{file}' is a plan for {plan.cluster.job_world_size} ranks and the job has {ranks}; start as many, or "
            "plan for this cluster"
        )
    if plan.cluster.replication is not None:
        raise UsageError(
            f"'{file}' is a plan for a 2D job, which `train` does not run yet; plan for one sharding group"
        )
    return plan


def check_sequences(plan: Plan) -> None:
    """UsageError where a sequence table is copied to every rank on CPU: FBGEMM pools its rows there."""
    sequences = {table.name for table in plan.workload.tables if not table.pooled}
    for placement in plan.placements if device_type() == "cpu" else ():
        if placement.table in sequences and placement.sharding_type not in SEQUENCES_ON_CPU:
            raise UsageError(
                f"table '{placement.table}' has pooling none and is {placement.sharding_type} in the plan, and "
                f"FBGEMM pools such a copy on CPU; use a plan of {', '.join(SEQUENCES_ON_CPU)} for it"
            )


def _lookups(model: nn.Module, schema: DataSchema, sample: Batch, batch_size: int) -> dict[str, ParameterConstraints]:
    """Ids a bag of each feature that the model's tables look up: those that the data says, else those of the sample.

    Of deduplicated features, the batch is of their distinct rows.
    """
    features = features_of(model)
    known = {feature.name: feature.pooling_factor for feature in schema.features}
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
        for config in configs_of(model)
    }


def with_collections(plan: Plan, run: Run, model: nn.Module) -> Plan:
    """The plan with the paths of this model's modules, which files made for a list of tables do not know.

    Raises:
        PlanMismatch: plan and model do not have the same tables.
    """
    found = read_workload(
        model,
        sharders_of(collectives_of(run.comms)),
        batch_size=plan.workload.batch_size,
        optimizer=plan.workload.optimizer,
    )
    paths = {table.name: table.collection for table in found.tables}
    pooled = {table.name: table.pooled for table in found.tables}
    planned = {table.name for table in plan.workload.tables}
    if planned != set(paths):
        odd = min(planned ^ set(paths))
        where = "the plan places and the model lacks" if odd in planned else "the model has and the plan does not place"
        raise PlanMismatch(f"table '{odd}' is one that {where}; plan again for this run")
    for table in plan.workload.tables:
        if table.pooled != pooled[table.name]:
            words = ("a sequence table", "a pooled one")
            raise PlanMismatch(
                f"table '{table.name}' is {words[table.pooled]} in the plan and {words[pooled[table.name]]} in the "
                "model; plan again for this run"
            )
    tables = tuple(replace(table, collection=paths[table.name]) for table in plan.workload.tables)
    return replace(plan, workload=replace(plan.workload, tables=tables))
