"""Commands that list devices, planners and schemas, check the installation, and make workloads."""

import click

from recsmith.cli.options import count_option, force_option, format_option
from recsmith.cli.printing import note, print_as, print_json, show_report

NOUNS = (  # kinds of files: first those that people write, then those that RecSmith writes
    "workload", "cluster", "constraints", "plan", "run", "dataset", "model", "train-bench",
    "result", "comparison", "sweep", "explanation", "step-memory", "advice",
)  # fmt: skip


@click.command(name="devices")
@format_option
def devices_command(format_: str) -> None:
    """List the devices of the catalogue: memory, speeds, links, and how many a host holds.

    `--format json` prints all figures, in bytes and bytes a second, with the sources of each.

    \b
    recsmith devices
    recsmith devices --format json
    """
    from recsmith.reports.catalogue import devices_report, devices_to_raw

    print_as(format_, devices_report, devices_to_raw)


@click.command(name="planners")
@format_option
def planners_command(format_: str) -> None:
    """List the planners (`--planner`) and the cost models (`--cost-model`), and what they need besides RecSmith.

    \b
    recsmith planners
    """
    from recsmith.reports.catalogue import registries_report, registries_to_raw

    print_as(format_, registries_report, registries_to_raw)


@click.command(name="schema")
@click.argument("noun", type=click.Choice(NOUNS))
def schema_command(noun: str) -> None:
    """Print the JSON Schema of a file that you write (workload to train-bench), or that RecSmith writes.

    The schema of a run says what each key means.

    \b
    recsmith schema workload > workload.schema.json
    recsmith schema run > run.schema.json
    """
    import json

    from recsmith.reports.schemas import schema_of

    click.echo(json.dumps(schema_of(noun), indent=2))


@click.command(name="doctor")
def doctor_command() -> None:
    """Check the installation: versions, and whether PyTorch, FBGEMM and TorchRec belong together.

    Planning needs none of the three, so an installation without them is sound. Exit code 2 says that they are
    installed but do not belong together: jobs of TorchRec would fail.
    """
    from recsmith._install import TRIO
    from recsmith.adapters.installed import require_torchrec, tried, trio_versions
    from recsmith.reports.catalogue import installation_lines

    found = trio_versions()
    show_report(installation_lines(found))
    if not any(found.values()):
        show_report([f"training, and plans inside a job, need TorchRec: {TRIO}"])
        return
    require_torchrec()
    show_report([f"the trio belongs together: recsmith.torchrec and verify --torchrec work; {tried(found)}"])


@click.group(name="workload")
def workload_command() -> None:
    """Make workloads."""


@workload_command.command(name="sample")
@count_option("--tables", required=True, help="How many tables.")
@count_option("--seed", default=0, least=0, help="Seed.")
@click.option("--max-bytes", metavar="SIZE", help="No table of more weights than this, such as 4GiB.")
@count_option("--batch-size", default=8192, help="Samples per device and step.")
@click.option("--optimizer", default="rowwise_adagrad", show_default=True, metavar="NAME", help="Sparse optimizer.")
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to a file instead of stdout.")
@force_option
def sample(
    tables: int, seed: int, max_bytes: str | None, batch_size: int, optimizer: str, output: str, force: bool
) -> None:  # fmt: skip
    """Draw a workload of tables like those of a production model.

    Rows, dims and pooling factors follow a public report of 1,933 tables, Zipf exponents public counts of accesses
    (docs/files.md). The same seed gives the same tables everywhere.

    \b
    recsmith workload sample --tables 856 --seed 0 -o pool.json
    recsmith workload sample --tables 100 --max-bytes 4GiB | recsmith plan - --cluster h100:8
    """
    from recsmith.files import check_target
    from recsmith.units import counted, format_size, parse_size
    from recsmith.workloads import WORKLOAD_FILE, save_workload, workload_to_raw
    from recsmith.workloads.sample import sample_workload

    check_target(output, kind=WORKLOAD_FILE, force=force)
    limit = None if max_bytes is None else parse_size(max_bytes)
    made = sample_workload(tables, seed, max_bytes=limit, batch_size=batch_size, optimizer=optimizer)
    if output == "-":
        print_json(workload_to_raw(made))
    else:
        save_workload(made, output)
        weights = format_size(made.weight_bytes)
        note(f"{counted(tables, 'table')}, {weights} of weights, written to {output}")
