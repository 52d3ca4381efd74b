"""`recsmith reshard`."""

import click

from recsmith.cli.options import format_option
from recsmith.cli.progress import end_line, note, progress_printer
from recsmith.reports.progress import moving_words

LOG_EVERY_S = 30.0  # seconds between two lines where stderr is no terminal


@click.command(name="reshard")
@click.argument("checkpoint")
@click.option("--from", "old", required=True, metavar="OLD", help="The plan under which the checkpoint was written.")
@click.option("--to", "new", required=True, metavar="NEW", help="The plan of the job that will load it.")
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder to write; it must not exist.")
@click.option("--init", type=click.Choice(["uniform", "zeros"]), default=None,
              help="What tables begin with that NEW adds: as TorchRec draws them, or zeros.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Seed of --init.")
@click.option("--strict", is_flag=True, default=False, help="Refuse to change any state of an optimizer.")
@format_option
def command(
    checkpoint: str, old: str, new: str, output: str, init: str | None, seed: int, strict: bool, format_: str
) -> None:  # fmt: skip
    """Move CHECKPOINT, of a job that ran under plan OLD, to the shards of plan NEW; other world sizes too.

    CHECKPOINT is a folder of torch.distributed.checkpoint, which is only read. OUT appears when it is complete; a run
    that was ended, or killed, goes on when the same command is run again (docs/reshard.md).

    \b
    recsmith reshard step-1000 --from old.json --to new.json -o step-1000-new
    recsmith reshard step-1000 --from old.json --to new.json -o out --init uniform --strict
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.adapters.reshard.reshard import reshard
    from recsmith.files import dump_json
    from recsmith.reports.layout import show
    from recsmith.reports.reshards import reshard_report, reshard_to_raw

    report = reshard(
        checkpoint, old, new, output, init="uniform" if init == "uniform" else "zeros" if init else None, seed=seed,
        strict=strict, on_progress=progress_printer(moving_words, LOG_EVERY_S),
    )  # fmt: skip
    end_line()
    if report.inexact:
        note(f"the optimizer state of {len(report.inexact)} tables is not what it was; --strict would refuse")
    if format_ == "json":
        click.echo(dump_json(reshard_to_raw(report)), nl=False)
    else:
        show(reshard_report(report))
