"""`recsmith explain`."""

import click

from recsmith.cli.options import format_option


@click.command(name="explain")
@click.argument("plan")
@click.option("--table", metavar="T", help="All about one table: its cost, and what else it could be.")
@click.option("--cost-model", metavar="M", help="Cost model (default: the plan's own).")
@format_option
def command(plan: str, table: str | None, cost_model: str | None, format_: str) -> None:
    """Explain what binds the step of PLAN (a file, '-' for stdin): slowest ranks, largest terms, dearest tables.

    \b
    recsmith explain plan.json
    recsmith explain plan.json --table user_id
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.analyses.explain import explain
    from recsmith.files import dump_json
    from recsmith.reports.explanations import explanation_report, explanation_to_raw
    from recsmith.reports.layout import show

    explanation = explain(plan, table, cost_model)
    if format_ == "json":
        click.echo(dump_json(explanation_to_raw(explanation)), nl=False)
    else:
        show(explanation_report(explanation))
