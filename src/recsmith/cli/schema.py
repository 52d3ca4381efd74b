"""`recsmith schema`."""

import click

NOUNS = ("workload", "cluster", "constraints", "plan", "result", "comparison", "sweep", "explanation")


@click.command(name="schema")
@click.argument("noun", type=click.Choice(NOUNS))
def command(noun: str) -> None:
    """Print the JSON Schema of a file: workload, cluster, constraints, plan, result, comparison, sweep or explanation.

    \b
    recsmith schema workload > workload.schema.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    import json

    from recsmith.reports.schemas import schema_of

    click.echo(json.dumps(schema_of(noun), indent=2))
