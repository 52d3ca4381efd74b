"""`recsmith simulate`."""

import click

from recsmith.cli.options import format_option
from recsmith.cli.progress import note


@click.command(name="simulate")
@click.argument("plan")
@click.option("--cost-model", metavar="M", help="Cost model (default: the plan's own).")
@format_option
def command(plan: str, cost_model: str | None, format_: str) -> None:
    """Price PLAN (a file, '-' for stdin): cost per device, bound and gap under a cost model.

    A file written by hand needs workload, cluster and placements alone (docs/files.md).

    \b
    recsmith simulate plan.json
    recsmith simulate plan.json --format json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import dump_json
    from recsmith.planning.simulate import simulate
    from recsmith.reports.layout import show
    from recsmith.reports.plans import overfull_words, plan_report, price_to_raw

    priced = simulate(plan, cost_model)
    overfull = overfull_words(priced.cost)
    if overfull:
        note(overfull)
    if format_ == "json":
        click.echo(dump_json(price_to_raw(priced)), nl=False)
    else:
        show(plan_report(priced))
