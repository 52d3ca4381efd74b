"""`recsmith delta`."""

import click

from recsmith.cli.options import force_option, format_option
from recsmith.cli.printing import print_json
from recsmith.units import counted


@click.group(name="delta")
def delta_command() -> None:
    """Send only what a day of training changed to copies of a model."""


@delta_command.command(name="make")
@click.argument("old")
@click.argument("new")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Folder of the delta.")
@force_option
@format_option
def make(old: str, new: str, output: str, force: bool, format_: str) -> None:
    """Write the rows and layers in which model NEW differs from model OLD. Both are folders of runs, or of models.

    \b
    recsmith delta make runs/monday runs/tuesday -o tuesday.delta
    """
    from recsmith.files import encode
    from recsmith.training.results.deltas import make_delta, size_of

    made = make_delta(old, new, output, force=force)
    if format_ == "json":
        print_json(encode(made))
        return
    whole = sum(each.change == "whole" for each in made.tensors.values())
    rows = sum(each.shape[0] for each in made.tensors.values() if each.change == "rows")
    changed = f"{counted(made.changed_rows, 'row')} of {rows:,} in tables that changed"
    click.echo(f"{changed}, {counted(whole, 'whole tensor')}: {size_of(output)} in place of {size_of(new)}")


@delta_command.command(name="apply")
@click.argument("model")
@click.argument("deltas", nargs=-1, required=True)
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Folder of the model that is made.")
@force_option
def apply(model: str, deltas: tuple[str, ...], output: str, force: bool) -> None:
    """Make the newest model from MODEL and its DELTAS, the oldest first: bit for bit the model that was exported.

    \b
    recsmith delta apply runs/monday tuesday.delta wednesday.delta -o serving/wednesday
    """
    from recsmith.training.results.deltas import apply_deltas

    click.echo(f"{apply_deltas(model, deltas, output, force=force)}: made, with the digest of the exported model")
