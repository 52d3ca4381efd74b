"""`recsmith data`."""

from typing import Literal

import click

from recsmith.cli.datasets import cluster, convert, workload
from recsmith.cli.options import format_option
from recsmith.cli.progress import end_line, note, progress_printer

PROGRESS_S = 30.0  # seconds between two lines of progress in a log


@click.group(name="data")
def command() -> None:
    """Look at the data that training reads, check it, convert it, or generate some whose truth is known.

    DATA is a spec (YAML or JSON, docs/data.md), a MovieLens folder, Criteo's click logs, or a folder that `generate`,
    `convert` or `cluster` wrote.
    """


command.add_command(convert)
command.add_command(cluster)
command.add_command(workload)


@command.command(name="inspect")
@click.argument("data")
@click.option("--samples", type=click.IntRange(min=1), default=100_000, show_default=True, metavar="N",
              help="How many samples to count.")  # fmt: skip
@click.option("--batch-size", type=click.IntRange(min=1), default=4096, show_default=True, metavar="N",
              help="Samples of a batch whose distinct bags are counted.")  # fmt: skip
@format_option
def inspect(data: str, samples: int, batch_size: int, format_: str) -> None:
    """Show what a dataset holds: features, ids, labels, how often ids and bags repeat, sessions, and bytes of columns.

    Of generated data it also says the best AUC and log loss that any model can reach.

    \b
    recsmith data inspect spec.yaml
    recsmith data inspect day_0.gz --samples 1000000
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.data import GeneratorSpec, count_figures, load_spec, open_dataset, planted_optimum
    from recsmith.files import dump_json
    from recsmith.reports.data import figures_report, figures_to_raw
    from recsmith.reports.layout import show

    spec = load_spec(data)
    figures = count_figures(open_dataset(spec), samples, batch_size)
    optimum = planted_optimum(spec, samples) if isinstance(spec, GeneratorSpec) else None
    if format_ == "json":
        click.echo(dump_json(figures_to_raw(figures, optimum)), nl=False)
    else:
        show(figures_report(figures, optimum))


@command.command(name="check")
@click.argument("data")
@format_option
def check(data: str, format_: str) -> None:
    """Read a dataset from end to end: count its samples and the corrupt ones, and check files and ids.

    Of Parquet, it names every file that is cut off, lacks columns or has more, whose types differ from the first file's
    or whose ids are outside their tables, and counts them. The exit code is 1 where training could not read the data.

    \b
    recsmith data check spec.yaml
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.data import check_spec, load_spec
    from recsmith.files import dump_json
    from recsmith.reports.data import check_report, check_to_raw
    from recsmith.reports.layout import show

    found = check_spec(load_spec(data), progress_printer(lambda done: f"{done:,} samples read", PROGRESS_S))
    end_line()
    if format_ == "json":
        click.echo(dump_json(check_to_raw(found)), nl=False)
    else:
        show(check_report(found))
    if not found.is_usable:
        click.get_current_context().exit(1)


@command.command(name="generate")
@click.argument("spec")
@click.option("-o", "--output", required=True, metavar="DIR", help="A new folder for the files.")
@click.option("--form", type=click.Choice(["parquet", "criteo"]), default="parquet", show_default=True,
              help="Parquet, or lines as Criteo published them.")  # fmt: skip
@click.option("--gzip", "packed", is_flag=True, default=False, help="Criteo's lines as .gz.")
def generate(spec: str, output: str, form: Literal["parquet", "criteo"], packed: bool) -> None:
    """Write the samples of a spec with `format: generator` as files: all of them, or nothing.

    Training can read the spec itself; files are for other programs, and to measure reading.

    \b
    recsmith data generate spec.yaml -o ctr
    recsmith data generate spec.yaml -o days --form criteo --gzip
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from pathlib import Path

    from recsmith.data import GeneratorSpec, check_folder, load_spec, open_dataset, write_dataset
    from recsmith.errors import UsageError
    from recsmith.units import counted

    found = load_spec(spec)
    if not isinstance(found, GeneratorSpec):
        raise UsageError(f"'{spec}' is no spec with `format: generator`; give one, as docs/data.md shows")
    if packed and form != "criteo":
        raise UsageError("--gzip is for --form criteo; Parquet files are packed already")
    folder = Path(output)
    check_folder(folder)
    on_progress = progress_printer(lambda done: f"{done:,} of {found.num_samples:,} samples written", PROGRESS_S)
    sessions = found.sessions.size
    write_dataset(open_dataset(found), folder, form, session_size=sessions, packed=packed, on_progress=on_progress)
    end_line()
    note(f"{counted(found.num_samples, 'sample')} written to {output}")
