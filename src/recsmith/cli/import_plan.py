"""`recsmith import`."""

from typing import Any

import click

from recsmith.cli.options import cluster_options, force_option, format_option, group_options, inputs_of, read_group
from recsmith.cli.progress import note


@click.command(name="import")
@click.argument("running")
@click.option("--workload", metavar="W", help="The tables of the job (default: RUNNING, if it is a planner's log).")
@cluster_options
@group_options
@click.option("--cost-model", metavar="M", help="Cost model (default: analytic).")
@click.option("-o", "--output", metavar="FILE", help="Write the plan to a file ('-' for stdout).")
@force_option
@format_option
def command(running: str, workload: str | None, output: str | None, force: bool, format_: str, **words: Any) -> None:
    """Make a plan file of RUNNING, the plan that a TorchRec job runs today: what it costs, its bound and its gap.

    RUNNING is a file, '-' for stdin: the log of the job with the report of TorchRec's planner in it, a ShardingPlan
    dumped by `json.dump(plan._serialize(), file)`, what `print(plan)` writes, or a plan of RecSmith.

    The plan of a 2D job (--group-size) is that of one sharding group, as it was before it was given to DMPCollection,
    which renames its ranks.

    \b
    recsmith import job.log --cluster h100:8x12 -o running.json
    recsmith import dump.json --workload tables.json --cluster h100:8 -o running.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import check_target, dump_json
    from recsmith.planning.simulate import price
    from recsmith.plans import PLAN_FILE, plan_to_raw, save_plan
    from recsmith.problems import Constraints
    from recsmith.reports.layout import show
    from recsmith.reports.plans import overfull_words, plan_report, price_to_raw
    from recsmith.workloads import load_workload

    check_target(output, inputs=inputs_of(running, workload, *words.values()), kind=PLAN_FILE, force=force)
    found = price(
        load_workload(workload or _log_of(running), batch_size=words["batch_size"], optimizer=words["optimizer"]),
        read_group(words),
        running,
        cost_model=words["cost_model"],
        constraints=Constraints(memory=words["memory"]),
    )
    overfull = overfull_words(found.cost)
    if overfull:
        note(overfull)
    if output and output != "-":
        save_plan(found, output)
    if output == "-":
        click.echo(dump_json(plan_to_raw(found)), nl=False)
    elif format_ == "json":
        click.echo(dump_json(price_to_raw(found)), nl=False)
    else:
        show(plan_report(found))


def _log_of(running: str) -> str:
    """The running plan's own file, where it is a planner's log, which names the tables of the job too."""
    from recsmith.errors import UsageError
    from recsmith.files import read_text
    from recsmith.workloads.torchrec_log import find_report

    if running == "-" or find_report(read_text(running), running) is None:
        raise UsageError(f"'{running}' does not name the tables of the job as a planner's log does; add --workload W")
    return running
