"""`recsmith planners`."""

import click

from recsmith.cli.options import format_option


@click.command(name="planners")
@format_option
def command(format_: str) -> None:
    """List the planners (`--planner`) and the cost models (`--cost-model`), and what they need besides RecSmith.

    \b
    recsmith planners
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import dump_json
    from recsmith.reports.layout import show
    from recsmith.reports.registries import registries_report, registries_to_raw

    if format_ == "json":
        click.echo(dump_json(registries_to_raw()), nl=False)
    else:
        show(registries_report())
