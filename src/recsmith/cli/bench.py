"""`recsmith bench`."""

from typing import Any

import click

from recsmith.cli.of_systems import GroupWithSystems
from recsmith.cli.options import MOST_VISITS, count_option, format_option, read_time, split_commas, stack
from recsmith.cli.printing import end_line, note, print_as, progress_printer
from recsmith.reports.progress import bench_words

LOG_EVERY_S = 60.0  # seconds between two progress lines if stderr is not a terminal


@click.group(name="bench", cls=GroupWithSystems)
def bench_command() -> None:
    """Benchmarks: planners side by side, measured on hardware."""


_run_options = stack(
    click.option("--hardware", default="cpu", show_default=True, metavar="H",
                 help="cpu, cuda:<gpu> or simulated:<gpu>[?noise=0.03]."),
    click.option("--cost-model", metavar="M", help="What planners search under (default: the hardware's learned one)."),
    click.option("--planners", callback=split_commas, metavar="A,B",
                 help="Planners, each with @<cost model> if it has its own."),
    count_option("--visits", default=5, most=MOST_VISITS, help="Of every task."),
    count_option("--seed", default=2026, least=0, help="Of the tasks."),
    click.option("--budget", callback=read_time, metavar="TIME",
                 help="Stop after a time such as 20m; run again to go on."),
    click.option("--plan-only", is_flag=True,
                 help="Measure nothing: plan here, go on in the folder where the GPU is."),
    click.option("-o", "--output", metavar="FOLDER", help="Folder to go on in (default: bench/<name>-...)."),
    format_option,
)  # fmt: skip


@bench_command.command(name="sharding")
@click.option("--rows", callback=split_commas, metavar="A,B", help="Rows such as 4x32,8x128: devices x largest dim.")
@count_option("--tasks", default=12, most=MOST_VISITS, help="Tasks of a row.")
@_run_options
def sharding(**options: Any) -> None:
    """Plan the sharding tasks of the NeuroShard paper, at our scale, with several planners, and measure the plans.

    A run that was ended continues in its folder (docs/benchmarks/sharding.md).

    \b
    recsmith bench sharding --hardware cpu
    recsmith bench sharding --hardware simulated:h100 --rows 4x32,8x32 --planners auto,neuroshard,lookup_greedy
    """
    _run("sharding", **options)


@bench_command.command(name="learned")
@click.option("--rows", callback=split_commas, metavar="A,B", help="Rows such as 4x50,8x200: devices x tables.")
@count_option("--tasks", default=50, most=MOST_VISITS, help="Tasks of a row.")
@_run_options
def learned(**options: Any) -> None:
    """Place tables that no shipped policy was trained on, with learned planners and others, and measure the plans.

    A run that was ended continues in its folder (docs/benchmarks/learned.md).

    \b
    recsmith bench learned --hardware simulated:h100 --visits 1
    recsmith bench learned --hardware simulated:h100 --rows 4x50 --planners dreamshard,cost_greedy,dim_greedy
    """
    _run("learned", **options)


def _run(
    family: str, *, format_: str, budget: float | None, plan_only: bool, output: str | None, **options: Any
) -> None:
    from pathlib import Path

    from recsmith.bench.sharding import bench_sharding
    from recsmith.reports.benchmarks import bench_lines, bench_to_raw

    settings = _settings(family, **options)
    name = settings.hardware.replace(":", "-").replace("/", "-").replace("?", "-")
    folder = Path(output or f"bench/{family}-{name}")
    on_progress = progress_printer(bench_words, LOG_EVERY_S, at_once=True)
    results = bench_sharding(settings, folder, budget_s=budget, plan_only=plan_only, on_progress=on_progress)
    end_line()
    if not results.complete:
        again = "the same command without --plan-only" if plan_only else "the same command"
        note(f"not complete; {again} with -o {folder} goes on")
    print_as(format_, lambda: bench_lines(results), lambda: bench_to_raw(results))


def _settings(family: Any, **options: Any) -> Any:
    from recsmith.bench.journal import BenchSettings
    from recsmith.bench.plans import DEFAULT_PLANNERS, LEARNED_PLANNERS, default_model
    from recsmith.bench.sharding import global_batch_of
    from recsmith.bench.tasks import LEARNED_ROWS, ROWS

    hardware = options["hardware"]
    rows, planners = (LEARNED_ROWS, LEARNED_PLANNERS) if family == "learned" else (ROWS, DEFAULT_PLANNERS)
    return BenchSettings(
        hardware=hardware,
        cost_model=options["cost_model"] or default_model(hardware),
        rows=tuple(map(str, rows)) if options["rows"] is None else options["rows"],
        tasks=options["tasks"],
        planners=planners if options["planners"] is None else options["planners"],
        visits=options["visits"],
        seed=options["seed"],
        global_batch=global_batch_of(hardware),
        family=family,
    )


@bench_command.command(name="train")
@click.argument("bench")
@click.option("-o", "--output", default="bench/train", show_default=True, metavar="FOLDER", help="Folder to go on in.")
@format_option
def train(bench: str, output: str, format_: str) -> None:
    """Train variants of a run on the same data and seeds, side by side.

    BENCH is a file that names the run, the settings of each variant, and the seeds (docs/train.md). Variants whose
    results are already in the folder are not trained again.

    \b
    recsmith bench train codecs.yaml -o bench/codecs
    """
    from recsmith.cli.printing import say
    from recsmith.files import encode
    from recsmith.reports.benchmarks import variant_lines
    from recsmith.training.results.variants import bench_train, load_bench

    rows = bench_train(load_bench(bench), output, on_progress=say)
    print_as(format_, lambda: variant_lines(rows), lambda: {"rows": [encode(row) for row in rows]})
