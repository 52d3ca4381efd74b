"""`recsmith compare`."""

from typing import Any

import click

from recsmith._plugins import PLANNERS
from recsmith.cli.options import format_option, limit_options, problem_options, read_problem, read_search, words
from recsmith.cli.plugin_option import PluginOption
from recsmith.cli.progress import note


@click.command(name="compare")
@click.argument("workload")
@problem_options
@click.option(
    "--planners", cls=PluginOption, group=PLANNERS, callback=words, metavar="A,B",
    help="Planners to compare (default: auto,cost_greedy,size_lookup_greedy,size_greedy).",
)  # fmt: skip
@click.option("--judges", callback=words, metavar="A,B", help="Cost models that judge (default: analytic,torchrec).")
@click.option("--baseline", metavar="PLAN", help="The running plan: a plan, a planner's log, or a dumped ShardingPlan.")
@limit_options
@format_option
def command(workload: str, format_: str, **options: Any) -> None:
    """Compare planners, and the plan that runs today, on WORKLOAD: cost under several cost models, bounds, memory.

    \b
    recsmith compare dlrm-v2 --cluster h100:8
    recsmith compare tables.json --cluster h100:8x12 --planners auto,cost_greedy --baseline running.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.analyses.compare import DEFAULT_JUDGES, DEFAULT_PLANNERS, compare
    from recsmith.files import dump_json
    from recsmith.reports.comparisons import comparison_report, comparison_to_raw
    from recsmith.reports.layout import show

    comparison = compare(
        **read_problem(workload, options),
        planners=DEFAULT_PLANNERS if options["planners"] is None else options["planners"],
        judges=DEFAULT_JUDGES if options["judges"] is None else options["judges"],
        baseline=options["baseline"],
        **read_search(options),
    )
    for row in comparison.rows:
        if row.truncated:
            note(f"the search of {row.name} was cut short; its plan is the best by then")
    if format_ == "json":
        click.echo(dump_json(comparison_to_raw(comparison)), nl=False)
    else:
        show(comparison_report(comparison))
