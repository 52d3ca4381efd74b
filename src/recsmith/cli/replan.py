"""Commands that change the plan of a running job: `recsmith replan` and `recsmith reshard`."""

from typing import Any

import click

from recsmith.cli.options import (
    GroupedCommand,
    count_option,
    force_option,
    format_option,
    inputs_of,
    read_cluster,
    read_search,
    read_speed,
    replan_options,
    search_options,
)
from recsmith.cli.printing import (
    end_line,
    is_watched,
    note,
    print_as,
    print_json,
    progress_printer,
    say,
    search_printer,
    show_report,
)
from recsmith.reports.progress import moving_words

LOG_EVERY_S = 30.0  # seconds between two progress lines if stderr is not a terminal


@click.command(name="replan", cls=GroupedCommand)
@click.argument("old")
@replan_options
@click.option("--max-moved", metavar="SIZE", help="The most that may move: 200GiB, or a share of what stays (5%).")
@click.option("--curve", is_flag=True, default=False, help="Plan for several limits from 0% to 100%, and compare.")
@count_option("--steps-left", help="Steps that are left to train; says which point of the curve pays.")
@click.option("--link", callback=read_speed, metavar="SPEED",
              help="Speed of receiving moved weights, such as 25GB/s (default: the slowest link).")  # fmt: skip
@search_options
@click.option("-o", "--output", metavar="FILE", help="Write the new plan (with --curve, the one that pays) to a file.")
@force_option
@click.option("--format", "format_", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True,
              help="Output; csv only with --curve.")  # fmt: skip
def replan_command(old: str, output: str | None, force: bool, format_: str, **options: Any) -> None:
    """Plan again from the plan OLD, for changed tables, statistics or devices, without moving much.

    Everything that is not given stays as it was: tables, cluster, and the sharding types that OLD could choose from.

    \b
    recsmith replan old.json --workload new.yaml --max-moved 200GiB -o new.json
    recsmith replan old.json --cluster h100:8x14 --curve --steps-left 500000
    """
    from recsmith.files import check_target
    from recsmith.planning.simulate import load_priced
    from recsmith.plans import PLAN_FILE, save_plan

    _check_options(options, format_, output)
    check_target(output, inputs=inputs_of(old, *options.values()), kind=PLAN_FILE, force=force)
    plan = load_priced(old)
    asked = _read_problem(plan, options) | read_search(options) | {"planner": options["planner"]}
    curve = _curve(plan, asked, options) if options["curve"] or options["steps_left"] is not None else None
    found = _one(plan, asked, options) if curve is None else curve.best
    end_line()
    if found.result.truncated:
        note("the search was cut short; this is the best plan by then")
    if output and output != "-":
        save_plan(found.result.plan, output)
    _print(plan, old, found if curve is None else curve, output, format_)


def _check_options(options: dict[str, Any], format_: str, output: str | None) -> None:
    """Raise UsageError for options that need a curve, and for a curve with a single limit."""
    from recsmith.errors import UsageError

    curve = options["curve"] or options["steps_left"] is not None
    if format_ == "csv" and not curve:
        raise UsageError("--format csv is of curves; add --curve")
    if options["link"] is not None and options["steps_left"] is None:
        raise UsageError("--link says how long a move takes; add --steps-left, to say how many steps it serves")
    if curve and options["max_moved"] is not None:
        raise UsageError("a curve has limits of its own; leave out --max-moved, or --curve and --steps-left")
    if curve and output and options["steps_left"] is None:
        raise UsageError("a curve has several plans; add --steps-left to choose one, or plan one with --max-moved")


def _read_problem(plan: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The new workload and cluster, and the constraints file."""
    from recsmith.workloads import load_workload

    changed = {name: options[name] for name in ("batch_size", "optimizer")}
    workload, cluster = options["workload"], options["cluster"]
    if cluster is None:
        cluster = plan.cluster.with_memory(options["hbm"], options["reserve"])
    else:
        cluster = read_cluster(cluster, options)
    return {
        "workload": load_workload(plan.workload if workload is None else workload, **changed),
        "cluster": cluster,
        "constraints": options["constraints"],
    }


def _one(plan: Any, asked: dict[str, Any], options: dict[str, Any]) -> Any:
    from recsmith.planning.replan import MAX_MOVED, replan

    return replan(plan, **asked, max_moved=options["max_moved"] or MAX_MOVED, on_improve=search_printer())


def _curve(plan: Any, asked: dict[str, Any], options: dict[str, Any]) -> Any:
    from recsmith.analyses.replan_curve import replan_curve

    return replan_curve(
        plan, **asked, steps_left=options["steps_left"], link_bandwidth=options["link"],
        on_point=_say if is_watched() else None,
    )  # fmt: skip


def _say(point: Any) -> None:
    from recsmith.reports.moves import point_words

    say(point_words(point))


def _print(plan: Any, name: str, found: Any, output: str | None, format_: str) -> None:
    from recsmith.plans import plan_to_raw
    from recsmith.reports.moves import curve_to_csv, replan_report, replan_to_raw

    if output == "-":
        print_json(plan_to_raw(found.result.plan))
    elif format_ == "json":
        print_json(replan_to_raw(found))
    elif format_ == "csv":
        click.echo(curve_to_csv(found), nl=False)
    else:
        show_report(replan_report(plan, name, found, output))


@click.command(name="reshard")
@click.argument("checkpoint")
@click.option("--from", "old", required=True, metavar="OLD", help="The plan under which the checkpoint was written.")
@click.option("--to", "new", required=True, metavar="NEW", help="The plan of the job that will load it.")
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder to write; it must not exist.")
@click.option("--init", type=click.Choice(["uniform", "zeros"]), default=None,
              help="Initial values of tables that only NEW has: as TorchRec draws them, or zeros.")  # fmt: skip
@count_option("--seed", default=0, least=0, help="Seed of --init.")
@click.option("--strict", is_flag=True, default=False, help="Refuse to change any optimizer state.")
@format_option
def reshard_command(
    checkpoint: str, old: str, new: str, output: str, init: str | None, seed: int, strict: bool, format_: str
) -> None:  # fmt: skip
    """Move CHECKPOINT, of a job that ran under plan OLD, to the shards of plan NEW; other world sizes too.

    CHECKPOINT is a folder of torch.distributed.checkpoint, which is only read. OUT appears when it is complete; a run
    that was ended, or killed, continues when the same command is run again (docs/replan.md).

    \b
    recsmith reshard step-1000 --from old.json --to new.json -o step-1000-new
    recsmith reshard step-1000 --from old.json --to new.json -o out --init uniform --strict
    """
    from recsmith.adapters.reshard.reshard import reshard
    from recsmith.reports.moves import reshard_report, reshard_to_raw

    report = reshard(
        checkpoint, old, new, output, init="uniform" if init == "uniform" else "zeros" if init else None, seed=seed,
        strict=strict, on_progress=progress_printer(moving_words, LOG_EVERY_S),
    )  # fmt: skip
    end_line()
    if report.inexact:
        note(f"the optimizer state of {len(report.inexact)} tables is not what it was; --strict would refuse")
    print_as(format_, lambda: reshard_report(report), lambda: reshard_to_raw(report))
