"""`recsmith replan`."""

from typing import Any

import click

from recsmith.cli.options import (
    force_option,
    inputs_of,
    read_cluster,
    read_search,
    read_speed,
    replan_options,
    search_options,
)
from recsmith.cli.progress import end_line, is_watched, note, say, search_printer


@click.command(name="replan")
@click.argument("old")
@replan_options
@click.option("--max-moved", metavar="SIZE", help="The most that may move: 200GiB, or a share of what stays (5%).")
@click.option("--curve", is_flag=True, default=False, help="Plan for several limits from 0% to 100%, and compare.")
@click.option("--steps-left", type=click.IntRange(min=1), metavar="N",
              help="Steps that the job still makes: says which point of the curve pays.")  # fmt: skip
@click.option("--link", callback=read_speed, metavar="SPEED",
              help="What a device receives of moved weights, such as 25GB/s (default: the slowest link).")  # fmt: skip
@search_options
@click.option("-o", "--output", metavar="FILE", help="Write the new plan, of a curve the one that pays, to a file.")
@force_option
@click.option("--format", "format_", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True,
              help="Output; csv is of curves.")  # fmt: skip
def command(old: str, output: str | None, force: bool, format_: str, **words: Any) -> None:
    """Plan anew from the plan OLD, for changed tables, statistics or devices, without moving much.

    What is not said stays as it was: the tables, the cluster, the sharding types that OLD could choose from.

    \b
    recsmith replan old.json --workload new.yaml --max-moved 200GiB -o new.json
    recsmith replan old.json --cluster h100:8x14 --curve --steps-left 500000
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import check_target
    from recsmith.plans import PLAN_FILE, load_plan, save_plan

    _check_words(words, format_, output)
    check_target(output, inputs=inputs_of(old, *words.values()), kind=PLAN_FILE, force=force)
    plan = load_plan(old)
    asked = _read_problem(plan, words) | read_search(words) | {"planner": words["planner"]}
    curve = _curve(plan, asked, words) if words["curve"] or words["steps_left"] is not None else None
    found = _one(plan, asked, words) if curve is None else curve.best
    end_line()
    if found.result.truncated:
        note("the search was cut short; this is the best plan by then")
    if output and output != "-":
        save_plan(found.result.plan, output)
    _print(plan, old, found if curve is None else curve, output, format_)


def _check_words(words: dict[str, Any], format_: str, output: str | None) -> None:
    """Refuse words that go with a curve alone, and curves with a single limit."""
    from recsmith.errors import UsageError

    curve = words["curve"] or words["steps_left"] is not None
    if format_ == "csv" and not curve:
        raise UsageError("--format csv is of curves; add --curve")
    if words["link"] is not None and words["steps_left"] is None:
        raise UsageError("--link says how long a move takes; add --steps-left, to say how many steps it serves")
    if curve and words["max_moved"] is not None:
        raise UsageError("a curve has limits of its own; leave out --max-moved, or --curve and --steps-left")
    if curve and output and words["steps_left"] is None:
        raise UsageError("a curve has several plans; add --steps-left to choose one, or plan one with --max-moved")


def _read_problem(plan: Any, words: dict[str, Any]) -> dict[str, Any]:
    """The new workload and cluster, and the rules of a file."""
    from recsmith.workloads import load_workload

    changed = {name: words[name] for name in ("batch_size", "optimizer")}
    workload, cluster = words["workload"], words["cluster"]
    if cluster is None:
        cluster = plan.cluster.with_memory(words["hbm"], words["reserve"])
    else:
        cluster = read_cluster(cluster, words)
    return {
        "workload": load_workload(plan.workload if workload is None else workload, **changed),
        "cluster": cluster,
        "constraints": words["constraints"],
    }


def _one(plan: Any, asked: dict[str, Any], words: dict[str, Any]) -> Any:
    from recsmith.planning.replan import MAX_MOVED, replan

    return replan(plan, **asked, max_moved=words["max_moved"] or MAX_MOVED, on_improve=search_printer())


def _curve(plan: Any, asked: dict[str, Any], words: dict[str, Any]) -> Any:
    from recsmith.analyses.replan_curve import replan_curve

    return replan_curve(
        plan, **asked, steps_left=words["steps_left"], link_bandwidth=words["link"],
        on_point=_say if is_watched() else None,
    )  # fmt: skip


def _say(point: Any) -> None:
    from recsmith.reports.replans import point_words

    say(point_words(point))


def _print(plan: Any, name: str, found: Any, output: str | None, format_: str) -> None:
    from recsmith.files import dump_json
    from recsmith.plans import plan_to_raw
    from recsmith.reports.layout import show
    from recsmith.reports.replans import curve_to_csv, replan_report, replan_to_raw

    if output == "-":
        click.echo(dump_json(plan_to_raw(found.result.plan)), nl=False)
    elif format_ == "json":
        click.echo(dump_json(replan_to_raw(found)), nl=False)
    elif format_ == "csv":
        click.echo(curve_to_csv(found), nl=False)
    else:
        show(replan_report(plan, name, found, output))
