"""Advice on a run: a dry run with each possible change, compared with the dry run as it is.

A dry run decides, refuses and prices as a start does, so the advice states what the job would have done.
"""

from collections.abc import Callable, Sequence
from typing import Any

from recsmith.adapters.installed import require_torchrec
from recsmith.analyses.advice import Advice, Switch, advise_by
from recsmith.analyses.aims import STEP, Aim, JobPrice
from recsmith.analyses.table_switches import advise as advise_tables
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Source
from recsmith.files.settings import without_setting
from recsmith.plans import load_plan
from recsmith.prediction.captured_base import StepFactors, step_factors
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.speeds import core
from recsmith.training.launch.dry_run import DryRun, described, ranks_of
from recsmith.training.launch.prerequisites import own_modules
from recsmith.training.run import MADE_HERE, Run, RunComms, load_run
from recsmith.training.seams.registry import batches_of_a_step, systems, use_systems
from recsmith.workloads import Workload

APART = 0.10  # of a gain: 59 of 75 small ones predicted for runs were no farther off (docs/advise.md)
TABLES_ALONE = (
    "not priced: dense layers, their gradients and reading, and so nothing that changes these. For a job on CPUs, "
    "`recsmith advise RUN --set plan=plan.json` prices them on the links of a plan for that cluster"
)
OnSwitch = Callable[[str], object]


def advise_run(
    run: Run | Source, settings: tuple[str, ...] = (), *, cluster: Cluster | Source | None = None,
    step_s: float | None = None, capture: Source | None = None, aim: Aim = STEP, on_switch: OnSwitch | None = None,
    **search: Any,
) -> Advice:  # fmt: skip
    """What a run could switch on, and the gain of each change.

    Args:
        run: a Run or its file.
        settings: 'key=value' changes to the run.
        cluster: plan its tables on this cluster instead; None: price the job as it would train on this machine.
        step_s: measured seconds of a whole step on that cluster.
        capture: folder of a capture of the run, which corrects the parts of its predicted step.
        aim: what to minimise, and its limits; on this machine neither devices nor money.
        on_switch: called with the name of each switch before it is priced.
        search: further options of `plan`, for every plan on that cluster.

    Raises:
        UsageError: the run cannot start, its step is not predicted here, or the capture is of another job.
        Infeasible, NoPlanFound: its tables do not fit.
    """
    if step_s is not None and cluster is None:
        raise UsageError("the step of a run is predicted; say what a whole step takes together with a cluster")
    if capture is not None and cluster is not None:
        raise UsageError("a capture of a run says what it takes on this machine; leave out the cluster, or the capture")
    made = load_run(run, settings)
    if cluster is not None:
        return advise_tables(
            tables_on(run, cluster, settings), cluster, step_s=step_s, aim=aim, on_switch=on_switch,
            not_priced=TABLES_ALONE, **search,
        )  # fmt: skip
    base = described(run, settings)
    predicted = _step_of(base)
    by = None if capture is None else step_factors(capture, base.plan.workload, base.plan.cluster, predicted)
    about = (f"the run as it is: a step takes {predicted}", _whose_speeds()) if by is None else (by.about,)
    use_systems(made)

    def price_of(switches: Sequence[Switch]) -> JobPrice:
        more = tuple(each for switch in switches for each in switch.settings)
        try:
            return priced(described(run, (*settings, *more)) if more else base, by)
        except RecSmithError as error:
            raise UsageError(without_setting(more, str(error))) from error

    tried = [*core_switches(made), *(switch for system in systems() for switch in system.switches(made))]
    return advise_by(price_of, tried, about, on_switch, aim=aim)


def _whose_speeds() -> str:
    """On which machine the speeds behind the predicted step were measured."""
    return (
        f"its speeds are of a core of another machine ({core().card.device}); on another processor a part may take "
        "several times as long, which a capture of the run tells (--capture)"
    )


def tables_on(run: Run | Source, cluster: Cluster | Source, settings: tuple[str, ...] = ()) -> Workload:
    """The tables of a run as devices of a cluster look them up; they need not fit on this machine.

    settings: 'key=value' changes to the run.
    """
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.plan import tables_of_run

    made = load_run(run, settings)
    require_torchrec()
    with own_modules(made, run):
        return tables_of_run(unsharded(made), load_cluster(cluster).job_world_size)


def _step_of(dry: DryRun) -> JobStep:
    if dry.step is None:
        raise UsageError(
            "the whole step of a run is predicted on CPU alone; add --cluster, and its tables are advised on for that"
        )
    return dry.step


def priced(dry: DryRun, by: StepFactors | None = None) -> JobPrice:
    """The JobPrice of a dry run; UsageError if its step is not predicted. by: factors of a capture that correct it."""
    step = _step_of(dry) if by is None else by.corrected(_step_of(dry))
    ranks, _ = ranks_of(dry.run)
    samples = dry.run.data.local_batch_size(ranks) * batches_of_a_step(dry.run)
    return JobPrice(
        step_s=step.step_s, samples=samples, memory_bytes=max(each.total for each in dry.memory), error=step.error,
        apart=APART,
    )  # fmt: skip


def core_switches(run: Run) -> list[Switch]:
    """Possible changes of a run that belong to no system."""
    found: list[Switch] = []
    if run.plan not in MADE_HERE and load_plan(run.plan).cluster.hosts == 1:  # a plan made here is for one host
        found.append(Switch(
            name="a new plan", change="plan: auto", settings=("plan=auto",), quality="exact", page="train.md"
        ))  # fmt: skip
    if run.optimizers.sparse.name == "adagrad":
        found.append(Switch(
            name="row-wise Adagrad", change="optimizers.sparse.name: rowwise_adagrad",
            settings=("optimizers.sparse.name=rowwise_adagrad",), quality="not measured", page="train.md",
        ))  # fmt: skip
    if run.comms == RunComms() and (run.ranks or 1) > 1:
        found.append(Switch(
            name="fp16 and bf16 between ranks", change="comms: {forward: fp16, backward: bf16}",
            settings=("comms.forward=fp16", "comms.backward=bf16"), quality="AUC 0.72338 ± 0.00031 with "
            "fp16 both ways beside 0.72342 ± 0.00207 (two seeds, generated clicks); bf16 was not measured",
            page="train.md", rests="benchmarks/train.md",
        ))  # fmt: skip
    if run.model.precision == "fp32":
        found.append(Switch(
            name="products in bf16", change="model.precision: bf16", settings=("model.precision=bf16",),
            quality="0.009 points of AUC, which five seeds cannot tell from nothing", page="precision.md",
        ))  # fmt: skip
    if not run.data.batch_changes:
        key = "batch_size" if run.data.global_batch_size is None else "global_batch_size"
        size = 2 * getattr(run.data, key)
        found.append(Switch(
            name="twice the batch", change=f"data.{key}: {size}", settings=(f"data.{key}={size}",),
            quality="not measured; learning rates have to follow, and an epoch has half as many steps", page="train.md",
        ))  # fmt: skip
    return found
