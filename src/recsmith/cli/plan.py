"""`recsmith plan`."""

from typing import Any

import click

from recsmith.cli.options import (
    force_option,
    format_option,
    inputs_of,
    problem_options,
    read_problem,
    read_search,
    search_options,
)
from recsmith.cli.progress import end_line, note, proof_printer, search_printer


@click.command(name="plan")
@click.argument("workload")
@problem_options
@search_options
@click.option(
    "--prove", is_flag=True, default=False, help="Look for a better bound as well: a minute, or half of the time limit."
)
@click.option("-o", "--output", metavar="FILE", help="Write the plan to a file ('-' for stdout).")
@force_option
@format_option
def command(workload: str, prove: bool, output: str | None, force: bool, format_: str, **words: Any) -> None:
    """Find a sharding plan for WORKLOAD on a cluster.

    WORKLOAD is a built-in (dlrm-v2, criteo-1tb, criteo-kaggle, nvidia-tiny .. nvidia-colossal) or a file: YAML, JSON,
    CSV, or a job's log with the report of TorchRec's planner in it; '-' reads stdin.

    \b
    recsmith plan dlrm-v2 --cluster h100:8
    recsmith plan tables.json --cluster h100:8x12 --hbm 60GiB -o plan.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.cli.other_processor import note_other_processor
    from recsmith.files import check_target
    from recsmith.planning import plan
    from recsmith.plans import PLAN_FILE, save_plan

    check_target(output, inputs=inputs_of(workload, *words.values()), kind=PLAN_FILE, force=force)
    result = plan(
        **read_problem(workload, words), **read_search(words), planner=words["planner"], prove=prove,
        on_improve=search_printer(), on_bound=proof_printer(),
    )  # fmt: skip
    end_line()
    note_other_processor(result.plan.cost_model)
    if result.truncated:
        note("the search was cut short; this is the best plan by then")
    if output and output != "-":
        save_plan(result.plan, output)
    _print(result, output, format_)


def _print(result: Any, output: str | None, format_: str) -> None:
    from recsmith.files import dump_json
    from recsmith.plans import plan_to_raw
    from recsmith.reports.plans import result_to_raw

    if output == "-":
        click.echo(dump_json(plan_to_raw(result.plan)), nl=False)
    elif format_ == "json":
        click.echo(dump_json(result_to_raw(result)), nl=False)
    else:
        from recsmith.reports.layout import show
        from recsmith.reports.plans import plan_report
        from recsmith.units import counted

        written = f", written to {output}" if output else ""
        tries = counted(result.iterations, "try", "tries")
        lost = "".join(f"; {words}" for words in result.left_out)
        show(
            plan_report(
                result.plan,
                f"planner {result.plan.planner}, {tries}, {result.elapsed_s:.2f} s{written}{lost}",
            )
        )
