"""`recsmith evaluate`."""

import click

from recsmith.cli.options import format_option
from recsmith.cli.progress import say


@click.command(name="evaluate")
@click.argument("folder")
@click.option("--data", metavar="PATH", help="Data to score, or the spec of it (default: data.test of the run).")
@click.option("--ranks", type=click.IntRange(min=1), metavar="N", help="Processes (default: those of the run).")
@format_option
def command(folder: str, data: str | None, ranks: int | None, format_: str) -> None:
    """Score the model that a run left in FOLDER (the run's output) on test data.

    \b
    recsmith evaluate runs/first
    recsmith evaluate runs/first --data criteo/day_23.tsv.gz --ranks 2 --format json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import dump_json, encode
    from recsmith.training.evaluation import evaluate

    scores = encode(evaluate(folder, data=data, ranks=ranks, on_progress=say))
    if format_ == "json":
        click.echo(dump_json(scores), nl=False)
    else:
        click.echo(", ".join(f"{name} {value:,.6g}" for name, value in scores.items()))
