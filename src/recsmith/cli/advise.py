"""The command `recsmith advise`."""

from pathlib import Path
from typing import Any

import click

from recsmith.cli.live import live
from recsmith.cli.options import (
    GroupedCommand,
    count_option,
    format_option,
    is_run,
    limit_options,
    read_cluster,
    read_search,
    read_time,
    size_value,
    tables_of,
)
from recsmith.cli.printing import heard_switches, print_as, say
from recsmith.errors import UsageError

OF_CLUSTERS = ("hbm", "reserve", "cost_model", "iterations", "time_limit", "budget")  # options that need --cluster
OBJECTIVES = ("step", "devices", "cost", "memory")
OF_RUNS = ("step", "memory")  # objectives that a run on this machine can have


@click.command(name="advise", cls=GroupedCommand)
@click.argument("job")
@click.option("-c", "--cluster", metavar="C", help="`<device>:<per host>[x<hosts>]` or a file; a run needs none.")
@click.option("--hbm", callback=size_value, metavar="SIZE", help="Device memory, such as 60GiB.")
@click.option("--reserve", callback=size_value, metavar="SIZE", help="Memory kept free on every device.")
@count_option("--batch-size", help="Samples per device and step, instead of the tables' own.")
@click.option("--running", metavar="PLAN", help="The plan that the job runs today, in any form that compare reads.")
@click.option("--step-time", callback=read_time, metavar="TIME", help="Measured time of a whole step, such as 8ms.")
@click.option("--capture", metavar="FOLDER", help="A capture of the job, with the measured time of its step.")
@click.option(
    "--objective",
    "wanted",
    type=click.Choice(OBJECTIVES),
    default="step",
    show_default=True,
    help="What to minimise.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="DEVICE=N/h",
    help="Dollars per hour and device, such as h100=2.99/h; each device named is tried.",
)
@click.option("--step-under", callback=read_time, metavar="TIME", help="Longest step that is allowed, such as 5ms.")
@click.option("--budget", metavar="N/h", help="Limit for the price of all devices, in dollars per hour, such as 40/h.")
@count_option("--try", "steps_tried", help="Train the first three changes of a run here, for N steps of three seeds.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace a value of a run.")
@limit_options
@format_option
def advise_command(job: str, format_: str, **options: Any) -> None:
    """Say which changes of JOB pay: predicted gain, memory, quality, and how to switch each on.

    JOB is a run file of `recsmith train`; tables as `recsmith plan` reads them, a built-in or a file; or what runs
    today: a plan, on its own cluster, or a job's log with the report of TorchRec's planner.

    \b
    recsmith advise dlrm-v2 --cluster h100:8x4
    recsmith advise job.log --cluster h100:8 --step-time 9.5ms
    recsmith advise run.yaml
    """
    from recsmith.reports.advice import advice_lines, advice_to_raw

    if is_run(job):
        advice = _of_run(job, options)
    else:
        with live("pricing what pays"):
            advice = _of_tables(job, options)
    print_as(format_, lambda: advice_lines(advice), lambda: advice_to_raw(advice))


def _of_run(job: str, options: dict[str, Any]) -> Any:
    from recsmith.advising.runs import advise_run

    for name in ("running", "batch_size"):
        if options[name] is not None:
            option = name.replace("_", "-")
            raise UsageError(
                f"'{job}' is a run, which says its plan and batch itself; use --set in place of --{option}"
            )
    aim = _aim(options)
    if options["cluster"] is None:
        if options["wanted"] not in OF_RUNS or options["prices"]:
            raise UsageError(
                f"money and devices are of plans on a cluster, and '{job}' is tried as it would train on this machine; "
                f"add --cluster, or take --objective {' or '.join(OF_RUNS)} without prices"
            )
        given = next((name for name in OF_CLUSTERS if options[name] is not None), None)
        if given is not None:
            raise UsageError(
                f"--{given.replace('_', '-')} is of plans on a cluster, and '{job}' is tried as it would train on this "
                "machine; add --cluster, or leave it out"
            )
        steps = options["steps_tried"]
        if steps is not None:
            _check_trials(steps)
        advice = advise_run(
            job, options["settings"], step_s=options["step_time"], capture=options["capture"], aim=aim,
            on_switch=heard_switches(),
        )  # fmt: skip
        return advice if steps is None else _tried(advice, job, options["settings"], steps)
    _refuse_trials(job, options)
    return advise_run(
        job, options["settings"], cluster=read_cluster(options["cluster"], options), step_s=options["step_time"],
        capture=options["capture"], aim=aim, on_switch=heard_switches(), **read_search(options),
    )  # fmt: skip


def _of_tables(job: str, options: dict[str, Any]) -> Any:
    from recsmith.analyses.table_changes import JobNames
    from recsmith.analyses.table_switches import advise
    from recsmith.plans import load_plan
    from recsmith.workloads import load_workload

    if options["settings"]:
        raise UsageError(f"--set changes a run, and '{job}' is none; use --batch-size, --cluster or the file itself")
    _refuse_trials(job, options)
    found, named = tables_of(job), options["cluster"]
    own = load_plan(job) if found is not job else None  # a plan states its cluster
    tables = load_workload(found, batch_size=options["batch_size"])
    if own is None and named is None:
        raise UsageError(f"'{job}' is no run and no plan, so say on which devices it trains: --cluster h100:8, say")
    if own is None or named is not None:
        where = read_cluster(named or "", options)
    else:
        where = own.cluster.with_memory(options["hbm"], options["reserve"])
    running, left_out = _running(job, own, tables, where, options["running"])
    search = read_search(options)
    if own is not None and named is None and search["cost_model"] is None:  # a plan has its own model
        search["cost_model"] = own.cost_model
    step_s, about = _whole_step(options, tables, where)
    return advise(
        tables, where, running=running, step_s=step_s, step_told=about, told=left_out, aim=_aim(options),
        named=JobNames(tables=job, cluster=named or f"the cluster of {job}"), on_switch=heard_switches(), **search,
    )  # fmt: skip


def _running(job: str, own: Any, tables: Any, where: Any, given: str | None) -> tuple[Any, list[str]]:
    """(placements of the running plan or None, and a sentence for each plan left out because its cluster differs)."""
    from recsmith.errors import PlanMismatch
    from recsmith.plans.running import load_placements, placements_for

    if given is not None:
        return given, []
    try:
        if own is not None:
            return placements_for(own, job, tables, where), []
        log = _of_log(job)
        return (None if log is None else load_placements(log, tables, where)), []
    except PlanMismatch as error:
        return None, [f"the plan that runs is left out, and one is made for this cluster: {error}"]


def _whole_step(options: dict[str, Any], tables: Any, where: Any) -> tuple[float | None, str]:
    """(seconds of a whole step, and a sentence about the capture that they were taken from)."""
    if options["capture"] is None:
        return options["step_time"], ""
    if options["step_time"] is not None:
        raise UsageError("--step-time and --capture both say what a step takes; leave one out")
    from recsmith.prediction.captured_base import captured_base

    found = captured_base(options["capture"], tables, where)
    return found.step_s, found.about


def _refuse_trials(job: str, options: dict[str, Any]) -> None:
    if options["steps_tried"] is not None:
        raise UsageError(
            f"--try trains a run on this machine, and '{job}' is advised on for a cluster; give a run without --cluster"
        )


def _check_trials(steps: int) -> None:
    """Refuse trials that are too short to show a difference, or on a busy machine, before anything is priced."""
    from recsmith.advising.trials import check_idle, check_steps

    check_steps(steps)
    check_idle()


def _tried(advice: Any, job: str, settings: tuple[str, ...], steps: int) -> Any:
    from recsmith.advising.trials import with_trials

    return with_trials(advice, job, settings, steps, on_progress=lambda line: say(f"trying {line}"))


def _aim(options: dict[str, Any]) -> Any:
    """The Aim of the job: what to minimise, and its limits."""
    from recsmith.analyses.aims import Aim, read_budget, read_prices

    budget = options["budget"]
    return Aim(
        objective=options["wanted"], step_under_s=options["step_under"], prices=read_prices(options["prices"]),
        budget=None if budget is None else read_budget(budget),
    )  # fmt: skip


def _of_log(job: str) -> str | None:
    """The job's file, if it is a log with the report of TorchRec's planner, which states the plan; else None."""
    from recsmith.files import read_text
    from recsmith.workloads.torchrec_log import find_report

    if not Path(job).is_file():
        return None
    return job if find_report(read_text(job), job) is not None else None
