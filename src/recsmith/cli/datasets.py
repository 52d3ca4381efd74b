"""`recsmith data convert`, `recsmith data cluster` and `recsmith data workload`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recsmith.cli.options import force_option, size_value, stack
from recsmith.cli.progress import end_line, note, progress_printer

if TYPE_CHECKING:
    from recsmith.data.converting import FileLayout, Progress

PROGRESS_S = 30.0  # seconds between two lines of progress in a log
Command = TypeVar("Command", bound=Callable[..., Any])

_layout_options = stack(
    click.option("-o", "--output", required=True, metavar="DIR", help="A new folder, or one that was left unfinished."),
    click.option("--row-group", default="32768", show_default=True, metavar="N|SIZE",
                 help="Rows of a row group, or their unpacked size such as 64MiB."),
    click.option("--file-samples", type=click.IntRange(min=1), default=2**20, show_default=True, metavar="N",
                 help="Samples of a file, about."),
    click.option("--popularity", metavar="FILE",
                 help="How many jobs read each feature (YAML or JSON); columns of popular ones come first."),
    click.option("--time", metavar="COLUMN", help="Column of times; without it, timestamp, or the samples' order."),
)  # fmt: skip


@click.command(name="convert")
@click.argument("data")
@_layout_options
@click.option("--session", metavar="COLUMN", help="Column of sessions, written as session_id.")
def convert(data: str, session: str | None, **words: Any) -> None:
    """Write any dataset as Parquet with one column a feature, in its own order.

    A command that was stopped, even by kill -9, goes on after the files it has finished when it is given once more.

    \b
    recsmith data convert day_0.gz -o day_0
    recsmith data convert maps.yaml -o flat --row-group 64MiB --popularity jobs.yaml
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.data import open_dataset
    from recsmith.data.converting import KeyColumns, convert_dataset

    columns = KeyColumns(session=session, time=words["time"])
    manifest = convert_dataset(open_dataset(data), Path(words["output"]), _layout(words), columns, _printer())
    _say(manifest, words["output"])


@click.command(name="cluster")
@click.argument("data")
@_layout_options
@click.option("--session", metavar="COLUMN",
              help="Column or feature of sessions; without it, session_id, or the generator's.")  # fmt: skip
@click.option("--memory", callback=size_value, default="1GiB", show_default=True, metavar="SIZE",
              help="Unpacked samples in memory at a time.")  # fmt: skip
def cluster(data: str, session: str | None, memory: int, **words: Any) -> None:
    """Write any dataset as Parquet whose samples of one session follow each other, by time.

    An external sort: samples go into files by the hash of their session, and each file is sorted. The order of
    sessions is that of their hashes. A command that was stopped goes on when it is given once more.

    \b
    recsmith data cluster clicks/ -o sessions --session user
    recsmith data cluster spec.yaml -o sessions --memory 512MiB
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.data import open_dataset
    from recsmith.data.converting import KeyColumns, cluster_dataset

    columns, folder = KeyColumns(session=session, time=words["time"]), Path(words["output"])
    manifest = cluster_dataset(open_dataset(data), folder, _layout(words), columns, _printer(), memory)
    _say(manifest, words["output"])


def _layout(words: dict[str, Any]) -> "FileLayout":
    from recsmith.data.converting import FileLayout, read_popularity
    from recsmith.units import parse_size

    group, popularity = words["row_group"], words["popularity"]
    sizes: dict[str, Any] = {"group_samples": int(group)} if group.isdigit() else {"group_bytes": parse_size(group)}
    popular = () if popularity is None else read_popularity(popularity)
    return FileLayout(file_samples=words["file_samples"], popular=popular, **sizes)


def _printer() -> "Callable[[Progress], None]":
    return progress_printer(lambda each: f"{each.done:,} of {each.total:,} samples {each.doing}", PROGRESS_S)


def _say(manifest: Any, output: str) -> None:
    from recsmith.units import counted, format_size

    end_line()
    groups, size = sum(part.row_groups for part in manifest.parts), sum(part.bytes for part in manifest.parts)
    note(
        f"{counted(manifest.samples, 'sample')} in {counted(len(manifest.parts), 'file')}, "
        f"{counted(groups, 'row group')}, {format_size(size)}, written to {output}"
    )
    if manifest.corrupt:
        note(f"{counted(manifest.corrupt, 'sample')} of the source were corrupt and are left out")


@click.command(name="workload")
@click.argument("data")
@click.option("--batch-size", type=click.IntRange(min=1), default=8192, show_default=True, metavar="N",
              help="Samples per device and step.")  # fmt: skip
@click.option("--embedding-dim", type=click.IntRange(min=1), default=64, show_default=True, metavar="N",
              help="Columns of every table.")  # fmt: skip
@click.option("--optimizer", default="rowwise_adagrad", show_default=True, metavar="NAME", help="Sparse optimizer.")
@click.option("--samples", type=click.IntRange(min=1), default=100_000, show_default=True, metavar="N",
              help="How many samples to count.")  # fmt: skip
@click.option("--deduplicate", is_flag=True, default=False,
              help="Look up distinct bags alone where features repeat, as `data.deduplicate: auto` does.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to a file instead of stdout.")
@force_option
def workload(data: str, output: str, force: bool, deduplicate: bool, **words: Any) -> None:
    """Count a dataset and make the workload that the planner takes: a table for each feature.

    Ids a bag, and how often rows are read again, are those of the samples counted.

    \b
    recsmith data workload sessions/ --batch-size 4096 -o plain.json
    recsmith data workload sessions/ --batch-size 4096 --deduplicate | recsmith plan - --cluster h100:8
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.data import counted_workload, open_dataset
    from recsmith.files import check_target, dump_json
    from recsmith.units import counted
    from recsmith.workloads import WORKLOAD_FILE, save_workload, workload_to_raw

    check_target(output, kind=WORKLOAD_FILE, force=force)
    made = counted_workload(open_dataset(data), deduplicate=deduplicate, **words)
    if output == "-":
        click.echo(dump_json(workload_to_raw(made)), nl=False)
        return
    save_workload(made, output)
    fewer = sum(each.batch_size is not None for table in made.tables for each in table.features)
    more = f", {fewer} of them of deduplicated features" if deduplicate else ""
    note(f"{counted(len(made.tables), 'table')}{more}, written to {output}")
