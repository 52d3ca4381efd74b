"""`recsmith data capacity`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsmith.cli.options import DEVICES, count_option, format_option, listed, named_data, size_value, split_commas
from recsmith.cli.printing import end_line, note, print_as, progress_printer

if TYPE_CHECKING:
    from recsmith.streaming.capacity import Capacity

PROGRESS_S = 30.0  # seconds between two progress lines in a log


@click.command(name="capacity")
@click.argument("data")
@click.option("--features", callback=split_commas, metavar="A,B", help="Features to look at (default: all).")
@click.option("--serve", type=float, default=0.99, show_default=True, metavar="SHARE",
              help="Share of the lookups that an unbounded table serves; rows are predicted for it.")  # fmt: skip
@click.option("--policies", callback=split_commas, default="lru,lfu,age", show_default=True, metavar="A,B",
              help="By which ids lose their rows; the first is the one of the bars and of --cluster.")  # fmt: skip
@count_option("--admit", default=1, help="Times an id must have been seen before it has a row.")
@count_option("--samples", help="How many samples to read at most (default: all).")
@count_option("--whole", help="Samples of the whole stream, where DATA is its beginning (default: those of DATA).")
@count_option("--embedding-dim", default=64, help="Columns of every table.")
@click.option("--optimizer", default="rowwise_adagrad", show_default=True, metavar="NAME", help="Sparse optimizer.")
@count_option("--batch-size", default=8192, help="Samples per device and step, of --cluster.")
@click.option(
    "--cluster",
    "-c",
    metavar="C",
    help=f"Plan tables of several sizes on it: `<device>:<per host>[x<hosts>]` or a file; {listed(DEVICES)}.",
)
@click.option("--memory", callback=size_value, default="256MiB", show_default=True, metavar="SIZE",
              help="What lookups that are kept may take.")  # fmt: skip
@format_option
def capacity_command(data: str, cluster: str | None, format_: str, **options: Any) -> None:
    """Print how many rows tables for unbounded ids need, by a stream or by what a watched job kept.

    DATA is what the other commands read, in the order in which it is stored, or the output folder of a run
    that was watched. Ctrl-C ends reading; the result is then for the samples read so far.

    \b
    recsmith data capacity clicks.yaml
    recsmith data capacity clicks.yaml --samples 1000000 --whole 10000000 --serve 0.95
    recsmith data capacity clicks.yaml --policies lfu --admit 2 --cluster h100:8
    """
    from recsmith.clusters import load_cluster
    from recsmith.reports.capacity import capacity_report, capacity_to_raw
    from recsmith.streaming.capacity.prices import row_bytes, sized_tables, workload_of

    where = None if cluster is None else load_cluster(cluster)
    dim, optimizer, batch = options["embedding_dim"], options["optimizer"], options["batch_size"]
    each = row_bytes(dim, optimizer)
    found = _found(data, options)
    sized = sized_tables(
        found,
        lambda times: workload_of(found, times, batch_size=batch, embedding_dim=dim, optimizer=optimizer),
        where,
    )
    print_as(format_, lambda: capacity_report(found, each, sized), lambda: capacity_to_raw(found, each, sized))


def _found(data: str, options: dict[str, Any]) -> "Capacity":
    """The capacity that a stream of samples asks for, or the sketches of a job."""
    from recsmith.data import open_dataset
    from recsmith.streaming.capacity import Asked, StreamReader
    from recsmith.streaming.capacity.of_sketches import capacity_of_job
    from recsmith.streaming.sketch_files import has_sketches

    names = ("features", "policies", "serve", "admit", "samples", "whole", "memory")
    asked = Asked(**{name: options[name] for name in names if options[name] is not None})
    if has_sketches(Path(data)):
        return capacity_of_job(data, asked)
    dataset = open_dataset(named_data(data))
    if dataset.part:
        note(dataset.part)
    reader = StreamReader(dataset, asked)
    ended = reader.read(progress_printer(lambda done: f"{done:,} samples read", PROGRESS_S))
    end_line()
    if not ended:
        note("interrupted; the result is for what was read until then")
    return reader.capacity(data, stopped=not ended)
