"""`recsmith data`."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from recsmith.cli.capacity import capacity_command
from recsmith.cli.options import count_option, force_option, format_option, named_data, size_value, stack
from recsmith.cli.printing import end_line, note, print_as, print_json, progress_printer

if TYPE_CHECKING:
    from recsmith.data import Dataset
    from recsmith.data.converting import ConversionProgress, FileLayout

PROGRESS_S = 30.0  # seconds between two progress lines in a log
Command = TypeVar("Command", bound=Callable[..., Any])
_layout_options = stack(
    click.option("-o", "--output", required=True, metavar="DIR", help="A new folder, or one that was left unfinished."),
    click.option("--row-group", default="32768", show_default=True, metavar="N|SIZE",
                 help="Rows of a row group, or their unpacked size such as 64MiB."),
    count_option("--file-samples", default=2**20, help="Samples of a file, about."),
    click.option("--popularity", metavar="FILE",
                 help="How many jobs read each feature (YAML or JSON); columns of popular ones come first."),
    click.option("--time", metavar="COLUMN", help="Column of times; without it, timestamp, or the samples' order."),
)  # fmt: skip


@click.group(name="data")
def data_command() -> None:
    """Look at the data that training reads, check it, convert it, or generate some whose truth is known.

    DATA is a spec (YAML or JSON, docs/data.md), a run, of which data.train is read, a MovieLens folder, Criteo's click
    logs, or a folder that `generate`, `convert` or `cluster` wrote.
    """


data_command.add_command(capacity_command)


@data_command.command(name="inspect")
@click.argument("data")
@count_option("--samples", default=100_000, help="How many samples to count.")
@count_option("--batch-size", default=4096, help="Samples of a batch whose distinct bags are counted.")
@format_option
def inspect(data: str, samples: int, batch_size: int, format_: str) -> None:
    """Show what a dataset holds: features, ids, labels, how often ids and bags repeat, sessions, and bytes of columns.

    For generated data it also prints the best AUC and log loss that any model can reach.

    \b
    recsmith data inspect spec.yaml
    recsmith data inspect day_0.gz --samples 1000000
    """
    from recsmith.data import GeneratorSpec, count_figures, open_dataset, planted_optimum
    from recsmith.reports.data import figures_report, figures_to_raw

    spec = _spec(data)
    dataset = open_dataset(spec)
    figures = count_figures(dataset, samples, batch_size)
    if dataset.note:
        note(dataset.note)
    optimum = planted_optimum(spec, samples) if isinstance(spec, GeneratorSpec) else None
    print_as(format_, lambda: figures_report(figures, optimum), lambda: figures_to_raw(figures, optimum))


@data_command.command(name="check")
@click.argument("data")
@format_option
def check(data: str, format_: str) -> None:
    """Read a dataset from end to end: count its samples and the corrupt ones, and check files and ids.

    For Parquet, it names every file that is cut off, lacks columns or has more, whose types differ from the first
    file's or whose ids are outside their tables, and counts them. It fails, as training would, on unreadable data.

    \b
    recsmith data check spec.yaml
    """
    from recsmith.data import check_spec, open_dataset
    from recsmith.errors import CorruptFile, RecSmithError
    from recsmith.reports.data import check_report, check_to_raw

    spec = _spec(data)
    if getattr(spec, "split", "all") != "all":
        with suppress(RecSmithError):  # data that cannot be opened: the check below reports it
            _tell_part(open_dataset(spec))
    found = check_spec(spec, progress_printer(lambda done: f"{done:,} samples read", PROGRESS_S))
    end_line()
    print_as(format_, lambda: check_report(found), lambda: check_to_raw(found))
    if found.problem is not None:
        raise CorruptFile(found.problem)


def _spec(data: str) -> Any:
    """The spec of the data given to a command."""
    from recsmith.data import load_spec

    found = named_data(data)
    return load_spec(found) if isinstance(found, str) else found


def _tell_part(dataset: "Dataset") -> None:
    """Print a note on which part of the data is read, unless all of it is."""
    if dataset.part:
        note(dataset.part)


@data_command.command(name="generate")
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
    """
    from pathlib import Path

    from recsmith.data import GeneratorSpec, check_folder, open_dataset, write_dataset
    from recsmith.errors import UsageError
    from recsmith.units import counted

    found = _spec(spec)
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


@data_command.command(name="convert")
@click.argument("data")
@_layout_options
@click.option("--session", metavar="COLUMN", help="Column of sessions, written as session_id.")
def convert(data: str, session: str | None, **options: Any) -> None:
    """Write any dataset as Parquet with one column a feature, in its own order.

    A command that was stopped, even by kill -9, continues after the files it has finished when it is run again.

    \b
    recsmith data convert day_0.gz -o day_0
    recsmith data convert maps.yaml -o flat --row-group 64MiB --popularity jobs.yaml
    """
    from recsmith.data import open_dataset
    from recsmith.data.converting import KeyColumns, convert_dataset

    columns = KeyColumns(session=session, time=options["time"])
    dataset = open_dataset(named_data(data))
    _tell_part(dataset)
    manifest = convert_dataset(dataset, Path(options["output"]), _layout(options), columns, _printer())
    _say(manifest, options["output"])


@data_command.command(name="cluster")
@click.argument("data")
@_layout_options
@click.option("--session", metavar="COLUMN",
              help="Column or feature of sessions; without it, session_id, or the generator's.")  # fmt: skip
@click.option("--memory", callback=size_value, default="1GiB", show_default=True, metavar="SIZE",
              help="Unpacked samples in memory at a time.")  # fmt: skip
def cluster(data: str, session: str | None, memory: int, **options: Any) -> None:
    """Write any dataset as Parquet whose samples of one session follow each other, by time.

    An external sort: samples go into files by the hash of their session, and each file is sorted. Sessions are ordered
    by their hashes. A command that was stopped continues when it is run again.

    \b
    recsmith data cluster clicks/ -o sessions --session user
    recsmith data cluster spec.yaml -o sessions --memory 512MiB
    """
    from recsmith.data import open_dataset
    from recsmith.data.converting import KeyColumns, cluster_dataset

    columns, folder = KeyColumns(session=session, time=options["time"]), Path(options["output"])
    dataset = open_dataset(named_data(data))
    _tell_part(dataset)
    manifest = cluster_dataset(dataset, folder, _layout(options), columns, _printer(), memory)
    _say(manifest, options["output"])


def _layout(options: dict[str, Any]) -> "FileLayout":
    from recsmith.data.converting import FileLayout, read_popularity
    from recsmith.units import parse_size

    group, popularity = options["row_group"], options["popularity"]
    sizes: dict[str, Any] = {"group_samples": int(group)} if group.isdigit() else {"group_bytes": parse_size(group)}
    popular = () if popularity is None else read_popularity(popularity)
    return FileLayout(file_samples=options["file_samples"], popular=popular, **sizes)


def _printer() -> "Callable[[ConversionProgress], None]":
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


@data_command.command(name="sequences")
@click.argument("events")
@_layout_options
@click.option("--longest", type=int, default=None, help="Events of a history: the newest ones.  [default: 200]")
@click.option("--least", type=int, default=None, help="Events that a target must have before it.  [default: 1]")
@click.option("--negatives", type=int, default=None, help="Samples of an item that the user never had, a target.")
@click.option("--split", type=click.Choice(["train", "valid", "test", "all"]), default=None,
              help="80, 10 and 10 % of the targets, or all.")  # fmt: skip
@click.option("--split-by", type=click.Choice(["time", "last"]), default=None,
              help="By time of targets, or each user's last ones for valid and test.")  # fmt: skip
def sequences(events: str, **options: Any) -> None:
    """Write events as samples: each event is a target, with what its user did strictly before it.

    EVENTS is a spec with `format: sequences` (docs/sequences.md), or a MovieLens folder. The samples are written as
    Parquet; training can also read the spec itself.

    \b
    recsmith data sequences events.yaml -o histories
    recsmith data sequences ml-latest-small -o histories --longest 50 --split train
    """
    from recsmith.data import MovieLensEvents, MovieLensSpec, SequencesSpec, open_dataset
    from recsmith.data.converting import KeyColumns, convert_dataset
    from recsmith.errors import UsageError

    names = ("longest", "least", "negatives", "split", "split_by")
    given = {name: options[name] for name in names if options[name] is not None}
    found = _spec(events)
    if isinstance(found, MovieLensSpec):
        found = SequencesSpec(movielens=MovieLensEvents(path=found.path))
    if not isinstance(found, SequencesSpec):
        raise UsageError(f"'{events}' is no spec with `format: sequences`, nor a MovieLens folder; give one of these")
    dataset = open_dataset(replace(found, **given))
    if dataset.note:
        note(dataset.note)
    _tell_part(dataset)
    columns = KeyColumns(session=None, time=options["time"])
    manifest = convert_dataset(dataset, Path(options["output"]), _layout(options), columns, _printer())
    _say(manifest, options["output"])


@data_command.command(name="vocabulary")
@click.argument("data", nargs=-1, required=True)
@click.option("-o", "--output", required=True, metavar="DIR", help="A new folder for the vocabularies.")
@count_option("--least", default=1, help="How often a value must occur to get a row of its own.")
@click.option("--rows", type=click.IntRange(min=1), default=None, metavar="N",
              help="Most values of a vocabulary with rows of their own.")  # fmt: skip
@click.option("--extend", metavar="DIR", default=None,
              help="Vocabularies of before, whose values keep their rows; new ones come behind them.")  # fmt: skip
@click.option("--memory", callback=size_value, default="1GiB", show_default=True, metavar="SIZE",
              help="What counting takes at a time; the rest lies on disk.")  # fmt: skip
@format_option
def vocabulary(data: tuple[str, ...], output: str, extend: str | None, format_: str, **options: Any) -> None:
    """Count the texts and raw ids of features, and write which row of its table each of them gets.

    DATA is a spec whose features name vocabularies, a run, or a folder that this command wrote; the counts of several
    DATA are added up. Each vocabulary that a feature names is written to a file of that name.

    \b
    recsmith data vocabulary clicks.yaml -o vocabularies --least 2
    recsmith data vocabulary part-0 part-1 part-2 -o vocabularies
    recsmith data vocabulary tuesday.yaml -o tuesday --extend monday
    """
    from recsmith.data.counted_vocabularies import make_vocabularies
    from recsmith.reports.data import vocabularies_report, vocabularies_to_raw

    counted = progress_printer(lambda done: f"{done:,} samples counted", PROGRESS_S)
    base = None if extend is None else Path(extend)
    made = make_vocabularies(list(map(named_data, data)), Path(output), extend=base, on_progress=counted, **options)
    end_line()
    print_as(format_, lambda: vocabularies_report(made), lambda: vocabularies_to_raw(made))


@data_command.command(name="workload")
@click.argument("data")
@count_option("--batch-size", default=8192, help="Samples per device and step.")
@count_option("--embedding-dim", default=64, help="Columns of every table.")
@click.option("--optimizer", default="rowwise_adagrad", show_default=True, metavar="NAME", help="Sparse optimizer.")
@count_option("--samples", default=100_000, help="How many samples to count.")
@click.option("--deduplicate", is_flag=True, default=False,
              help="Look up distinct bags alone where features repeat (docs/datasets.md).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to a file instead of stdout.")
@force_option
def workload(data: str, output: str, force: bool, deduplicate: bool, **options: Any) -> None:
    """Count a dataset and make the workload that the planner takes: a table for each feature.

    Ids per bag, and how often rows are read again, are counted on the samples that are read.

    \b
    recsmith data workload sessions/ --batch-size 4096 -o plain.json
    recsmith data workload sessions/ --batch-size 4096 --deduplicate | recsmith plan - --cluster h100:8
    """
    from recsmith.data import counted_workload, open_dataset
    from recsmith.files import check_target
    from recsmith.units import counted
    from recsmith.workloads import WORKLOAD_FILE, save_workload, workload_to_raw

    check_target(output, kind=WORKLOAD_FILE, force=force)
    made = counted_workload(open_dataset(named_data(data)), deduplicate=deduplicate, **options)
    if output == "-":
        print_json(workload_to_raw(made))
        return
    save_workload(made, output)
    fewer = sum(each.batch_size is not None for table in made.tables for each in table.features)
    more = f", {fewer} of them of deduplicated features" if deduplicate else ""
    note(f"{counted(len(made.tables), 'table')}{more}, written to {output}")
