"""`recsmith diff`."""

import click

from recsmith.cli.options import format_option


@click.command(name="diff")
@click.argument("before")
@click.argument("after")
@format_option
def command(before: str, after: str, format_: str) -> None:
    """Show what changed between the plans BEFORE and AFTER: tables, weights to move, and the step's cost.

    \b
    recsmith diff a.json b.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import dump_json
    from recsmith.plans import diff
    from recsmith.reports.diffs import diff_report, diff_to_raw
    from recsmith.reports.layout import show

    change = diff(before, after)
    if format_ == "json":
        click.echo(dump_json(diff_to_raw(change)), nl=False)
    else:
        show(diff_report(change, before, after))
