"""`recsmith measure`."""

from contextlib import ExitStack
from typing import Any, cast

import click

from recsmith.cli.options import count_option, format_option, read_time, split_commas
from recsmith.cli.printing import end_line, note, print_as, progress_printer, show_report
from recsmith.reports.progress import measuring_words

KERNELS_S = 120.0  # seconds spent on measuring kernels if neither --budget nor --cases is given
LOG_EVERY_S = 60.0  # seconds between two progress lines if stderr is not a terminal
budget_option = click.option("--budget", callback=read_time, metavar="TIME", help="Stop after a time such as 20m.")
seed_option = count_option("--seed", default=0, least=0, help="Seed of the cases.")
output_option = click.option("-o", "--output", metavar="FOLDER", help="Folder to add to (default: measurements/...).")


@click.group(name="measure")
def measure_command() -> None:
    """Measure embedding kernels and all-to-alls: the ground truth of cost models."""


@measure_command.command(name="compute")
@click.option("--hardware", required=True, metavar="H", help="cpu, cuda[:<gpu>], or simulated:<gpu>[?noise=0.03].")
@budget_option
@count_option("--samples", help="Stop once the folder holds N steady samples.")
@click.option(
    "--scale",
    metavar="S",
    help="Size of cases: cpu, gpu, jobs, pools, caches, cpu-caches or job-caches (default: the hardware's).",
)
@click.option("--planned", metavar="MODEL", help="Groups of plans under a cost model, not random ones.")
@click.option("--optimizers", callback=split_commas, metavar="A,B", help="Only these optimizers.")
@click.option("--data-types", callback=split_commas, metavar="A,B", help="Only these data types.")
@seed_option
@click.option("--check", is_flag=True, help="Compare FBGEMM with PyTorch on small cases instead; measure nothing.")
@output_option
def compute(
    hardware: str, budget: float | None, samples: int | None, scale: str | None, optimizers: tuple[str, ...] | None,
    data_types: tuple[str, ...] | None, seed: int, check: bool, output: str | None, planned: str | None,
) -> None:  # fmt: skip
    """Time fused embedding kernels, forward and backward with update, on random groups of tables.

    Each sample is measured until its two fastest visits agree, on a GPU once. Samples are added to a folder of
    Parquet files; a second run continues where the first one ended (docs/measurements.md).

    \b
    recsmith measure compute --hardware cpu --budget 20m
    recsmith measure compute --hardware simulated:h100 --samples 1000 -o simulated
    recsmith measure compute --hardware cpu --planned neural:cpu --budget 20m -o planned
    """
    if check:
        _check(hardware)
        return
    from recsmith.hardware import load_hardware
    from recsmith.measuring.cases import DATA_TYPES, Cases
    from recsmith.measuring.compute import measure_compute
    from recsmith.measuring.folder import Limit
    from recsmith.workloads.optimizers import CPU_OPTIMIZERS

    limit = Limit(budget_s=budget, samples=samples)
    opened = load_hardware(hardware, scale)
    chosen = {"optimizers": optimizers or CPU_OPTIMIZERS, "data_types": data_types or DATA_TYPES}
    with ExitStack() as block:
        if planned:
            from recsmith.costs import cost_model
            from recsmith.measuring.planned_cases import PlannedCases, device_of, planned_ahead

            cases = PlannedCases(
                seed=seed, scale=opened.scale, device=device_of(hardware), model=cost_model(planned),
                **cast(Any, chosen),
            )  # fmt: skip
            if opened.name == "cuda":  # on other hardware, planning in another process would disturb the measurements
                cases = block.enter_context(planned_ahead(cases))
        else:
            cases = Cases(seed=seed, scale=opened.scale, **cast(Any, chosen))
        folder = _folder(output, hardware)
        done = measure_compute(opened, cases, folder, limit, progress_printer(measuring_words, LOG_EVERY_S))
    end_line()
    note(f"{done.samples:,} samples in {done.elapsed_s:.0f} s ({done.per_hour:,.0f} an hour) added to {folder}")
    _note_journal(folder)


@measure_command.command(name="comm")
@click.option("--hardware", metavar="H", help="simulated:<gpu>[?noise=0.03] (default: local ranks).")
@count_option("--ranks", default=2, least=2, help="Ranks.")
@budget_option
@count_option("--samples", help="Stop once the folder holds N; simulated only.")
@seed_option
@output_option
def comm(
    hardware: str | None, ranks: int, budget: float | None, samples: int | None, seed: int, output: str | None
) -> None:
    """Time all-to-alls of pooled embeddings between local ranks: gloo, or nccl if each rank has a GPU.

    \b
    recsmith measure comm --ranks 2 --budget 1m
    recsmith measure comm --hardware simulated:h100 --ranks 16 --samples 2000
    """
    from recsmith.measuring.comm import measure_comm, simulate_comm
    from recsmith.measuring.exchanges import oversubscribed
    from recsmith.measuring.folder import Limit

    limit = Limit(budget_s=budget, samples=samples)
    folder = _folder(output, f"comm-{hardware}-{ranks}" if hardware else f"comm-{ranks}")
    if hardware:
        added = simulate_comm(hardware, folder, ranks, limit, seed)
    else:
        if oversubscribed(ranks):
            note(f"{ranks} ranks outnumber the cores of this machine: on CPU the scheduler is measured, not a link")
        added = measure_comm(folder, ranks, limit, seed)
    note(f"{added:,} exchanges added to {folder}")
    _note_journal(folder)


@measure_command.command(name="disk")
@click.argument("folder")
@format_option
def disk(folder: str, format_: str) -> None:
    """Measure the disk of a FOLDER, for tables on it (kernel key_value), and print the lines for a cluster file.

    \b
    recsmith measure disk .
    """
    from recsmith.files import encode
    from recsmith.measuring.disk import file_system, measure_disk
    from recsmith.reports.measurements import disk_lines

    found = measure_disk(folder)
    print_as(format_, lambda: disk_lines(found, file_system(folder)), lambda: encode(found))


@measure_command.command(name="show")
@click.argument("folder")
@format_option
def show(folder: str, format_: str) -> None:
    """Print what a FOLDER of measurements holds, or shipped:NAME: samples, visits, noise floor, speed, device, work.

    \b
    recsmith measure show measurements/cpu
    recsmith measure show shipped:cpu
    """
    from recsmith.measuring.about import locate
    from recsmith.reports.measurements import summary_lines, summary_to_raw

    path = locate(folder)
    print_as(format_, lambda: summary_lines(path), lambda: summary_to_raw(path))


@measure_command.command(name="fold")
@click.argument("folder")
def fold(folder: str) -> None:
    """Turn the journal of a FOLDER that was measured without pyarrow into Parquet.

    \b
    recsmith measure fold measurements/cuda
    """
    from pathlib import Path

    from recsmith.measuring.about import load_about
    from recsmith.measuring.folder import open_folder

    path = Path(folder)
    with open_folder(path, load_about(path)) as opened:
        part = opened.fold()
    note(f"wrote {part}" if part else f"the journal of {path} is empty; nothing to fold")


def _folder(output: str | None, name: str) -> Any:
    from pathlib import Path

    return Path(output or f"measurements/{name.replace(':', '-').replace('/', '-').replace('?', '-')}")


def _check(hardware: str) -> None:
    from recsmith.errors import RecSmithError
    from recsmith.measuring.correctness import check
    from recsmith.reports.measurements import kernel_check_lines

    found = check(hardware)
    show_report(kernel_check_lines(found))
    if not all(each.agrees for each in found):
        raise RecSmithError("FBGEMM and PyTorch disagree by more than rounding; do not trust measurements of this pair")


def _note_journal(folder: Any) -> None:
    from recsmith.measuring.parquet_parts import has_pyarrow

    if not has_pyarrow():
        note(f"without pyarrow samples stay in the journal; `recsmith measure fold {folder}` makes parquet of it")


@measure_command.command(name="kernels")
@click.option("--budget", callback=read_time, metavar="TIME", help="Time for kernels (default: 2m, or until --cases).")
@count_option("--cases", help="Stop once the file holds N cases.")
@click.option(
    "--ranks", callback=split_commas, metavar="1,2", help="Also measure collectives between so many local ranks."
)
@seed_option
@click.option("-o", "--output", required=True, metavar="FILE.json", help="File to add to.")
@click.option("--force", is_flag=True, default=False, help="Overwrite a file of another kind.")
def kernels(
    budget: float | None, cases: int | None, ranks: tuple[str, ...] | None, seed: int, output: str, force: bool
) -> None:
    """Time single kernels of dense layers and embeddings on this CPU, and gloo's collectives (docs/predict.md).

    Cases are visited three times in turns; a case whose two fastest visits differ by more than 15 % is left out.
    A second run with the same file and seed continues where the first one ended.

    \b
    recsmith measure kernels --cases 7200 --ranks 1,2 -o kernels.json
    recsmith learn kernels --data kernels.json -o here.safetensors
    """
    from pathlib import Path

    from recsmith.errors import UsageError
    from recsmith.files import check_target, starts_with_schema
    from recsmith.prediction.kernels.run import measure_kernels
    from recsmith.prediction.kernels.times import TIMES_SCHEMA

    check_target(output, kind=starts_with_schema(TIMES_SCHEMA), force=force)
    counts = tuple(int(each) for each in ranks or () if each.isdigit())
    if len(counts) != len(ranks or ()) or any(count < 1 for count in counts):
        raise UsageError(f"--ranks is {','.join(ranks or ())}; give numbers of 1 or more, such as 1,2")
    if budget is None and cases is None:
        budget = KERNELS_S
    printer = progress_printer(lambda done: f"{done:,} kernels", LOG_EVERY_S)
    made = measure_kernels(Path(output), budget_s=budget, cases=cases, seed=seed, ranks=counts, on_progress=printer)
    end_line()
    note(
        f"{output} holds {len(made.kernels):,} kernels of {made.cases:,} cases and {len(made.collectives):,} "
        f"collectives of {made.device}"
    )
