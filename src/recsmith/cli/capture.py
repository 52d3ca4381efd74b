"""`recsmith capture`."""

import click

from recsmith.cli.options import force_option
from recsmith.cli.progress import note
from recsmith.units import counted


@click.command(name="capture", context_settings={"ignore_unknown_options": True})
@click.argument("command_", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-o", "--output", required=True, metavar="FOLDER", help="New folder for the files of all ranks.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="Timed steps.")
@click.option("--skip", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
              help="Steps before all others, in which libraries warm up.")  # fmt: skip
@click.option("--plain", type=click.IntRange(min=1), default=10, show_default=True, metavar="N",
              help="Steps that are timed without the profiler, to compare.")  # fmt: skip
@force_option
def command(command_: tuple[str, ...], output: str, steps: int, skip: int, plain: int, force: bool) -> None:
    """Run COMMAND and capture some steps of it on every rank: times, and what depends on what (docs/predict.md).

    The command runs to its own end; a step ends where the first torch.optim optimizer steps.

    \b
    recsmith capture -o trace/ -- python train.py
    recsmith capture -o trace/ -- torchrun --nproc-per-node 2 train.py
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from pathlib import Path

    from recsmith.prediction.capture_files import CaptureSettings
    from recsmith.prediction.commands import capture_command

    settings = CaptureSettings(steps=steps, plain=plain, skip=skip)
    written = capture_command(Path(output), command_, settings, force=force)
    note(f"captured {counted(steps, 'step')} of {counted(written, 'rank')}; see them: recsmith predict {output}")
