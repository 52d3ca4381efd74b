"""`recsmith workload`."""

import click

from recsmith.cli.options import force_option
from recsmith.cli.progress import note


@click.group(name="workload")
def command() -> None:
    """Make workloads."""


@command.command(name="sample")
@click.option("--tables", type=click.IntRange(min=1), required=True, metavar="N", help="How many tables.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Seed.")
@click.option("--max-bytes", metavar="SIZE", help="No table of more weights than this, such as 4GiB.")
@click.option("--batch-size", type=click.IntRange(min=1), default=8192, show_default=True, metavar="N",
              help="Samples per device and step.")  # fmt: skip
@click.option("--optimizer", default="rowwise_adagrad", show_default=True, metavar="NAME", help="Sparse optimizer.")
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to a file instead of stdout.")
@force_option
def sample(
    tables: int, seed: int, max_bytes: str | None, batch_size: int, optimizer: str, output: str, force: bool
) -> None:  # fmt: skip
    """Draw a workload of tables like those of a production model.

    Rows, dims and pooling factors follow a public report of 1,933 tables, Zipf exponents public counts of accesses
    (docs/workloads.md). The same seed gives the same tables everywhere.

    \b
    recsmith workload sample --tables 856 --seed 0 -o pool.json
    recsmith workload sample --tables 100 --max-bytes 4GiB | recsmith plan - --cluster h100:8
    """  # noqa: D301 (click's mark that keeps the lines is one character, not two)
    from recsmith.files import check_target, dump_json
    from recsmith.units import counted, format_size, parse_size
    from recsmith.workloads import WORKLOAD_FILE, save_workload, workload_to_raw
    from recsmith.workloads.sample import sample_workload

    check_target(output, kind=WORKLOAD_FILE, force=force)
    limit = None if max_bytes is None else parse_size(max_bytes)
    made = sample_workload(tables, seed, max_bytes=limit, batch_size=batch_size, optimizer=optimizer)
    if output == "-":
        click.echo(dump_json(workload_to_raw(made)), nl=False)
    else:
        save_workload(made, output)
        weights = format_size(made.weight_bytes)
        note(f"{counted(tables, 'table')}, {weights} of weights, written to {output}")
