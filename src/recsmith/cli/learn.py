"""`recsmith learn`."""

from typing import Any

import click

from recsmith.cli.options import count_option, force_option, inputs_of, read_time, stack
from recsmith.cli.printing import end_line, note, progress_printer, show_report
from recsmith.reports.progress import policy_words, split_words, training_words
from recsmith.units import counted

FEW_SAMPLES = 400  # training samples; with 100, errors on another processor were twice as large (docs/learning.md)
LOG_EVERY_S = 30.0  # seconds between two progress lines if stderr is not a terminal


@click.group(name="learn")
def learn_command() -> None:
    """Train cost models, kernel models and placement policies on measurements."""


@learn_command.command(name="cost")
@click.option("--data", required=True, metavar="FOLDER[,FOLDER]", help="Measurements, or shipped:NAME.")
@click.option("-o", "--output", required=True, metavar="NAME.safetensors", help="File to write; its card beside it.")
@click.option("--variant", type=click.Choice(["convex", "corrected", "monotone", "linear", "free"]), default=None,
              help="convex (default), monotone, corrected, linear or free (no bound); that of --start.")  # fmt: skip
@count_option("--seed", default=0, least=0, help="Seed of the split and of the weights.")
@count_option("--epochs", default=250, help="Times that training sees every sample.")
@click.option("--budget", callback=read_time, metavar="TIME", help="Stop after a time such as 10m, at the best so far.")
@click.option("--start", metavar="MODEL", help="Begin with the weights of a model: cpu, or a .safetensors file.")
@force_option
def cost(
    data: str, output: str, variant: str, seed: int, epochs: int, budget: float | None, start: str | None, force: bool
) -> None:  # fmt: skip
    """Train a cost model on measured samples; `--cost-model neural:NAME.safetensors` plans by it (docs/learning.md).

    \b
    recsmith learn cost --data measurements/cpu --output cpu.safetensors
    recsmith learn cost --data measurements/here --output here.safetensors --start cpu
    recsmith plan tables.yaml --cluster cpu:8 --cost-model neural:cpu.safetensors
    """
    from recsmith.costs.neural.files import SCHEMA
    from recsmith.learning.costs.learn import learn_cost
    from recsmith.learning.preparation import check_outputs
    from recsmith.reports.learned_models import cost_card_lines

    folders = _folders(data, "--data")
    check_outputs(output, SCHEMA, inputs_of(start, *map(str, folders)), force=force)
    options = {"variant": variant, "seed": seed, "epochs": epochs, "budget_s": budget}
    card = learn_cost(folders, output, options, progress_printer(training_words, LOG_EVERY_S, _is_last), start)
    end_line()
    show_report(cost_card_lines(card))
    if card.train < FEW_SAMPLES:
        note(
            f"{counted(card.train, 'sample')} to train on is few; measure more"
            + ("" if start else ", or begin with the weights of a model: --start cpu (docs/learning.md)")
        )
    note(f"wrote {output}; plan with --cost-model neural:{output}")


@learn_command.command(name="comm")
@click.option("--data", required=True, metavar="FOLDER[,FOLDER]", help="Measured all-to-alls, or shipped:NAME.")
@click.option("--unseen", metavar="FOLDER[,FOLDER]", help="All-to-alls of other numbers of ranks, only to judge by.")
@click.option("-o", "--output", required=True, metavar="NAME.safetensors", help="File to write; its card beside it.")
@count_option("--seed", default=0, least=0, help="Seed of the split and of the weights.")
@count_option("--epochs", default=200, help="Times that training sees every exchange.")
@click.option("--budget", callback=read_time, metavar="TIME", help="Stop after a time such as 5m, at the best so far.")
@force_option
def comm(
    data: str, unseen: str | None, output: str, seed: int, epochs: int, budget: float | None, force: bool
) -> None:  # fmt: skip
    """Train one model of all-to-alls for any number of ranks: bytes and starts to the seconds of each rank.

    \b
    recsmith learn comm --data measurements/comm-2 --output comm.safetensors
    recsmith learn comm --data sim-4,sim-8,sim-16 --unseen sim-12,sim-32 --output comm-sim.safetensors
    """
    from recsmith.costs.neural_comm_files import COMM_SCHEMA
    from recsmith.learning.comm.learn import learn_comm
    from recsmith.learning.preparation import check_outputs
    from recsmith.reports.learned_models import comm_card_lines

    options = {"seed": seed, "epochs": epochs, "budget_s": budget}
    folders, judging = _folders(data, "--data"), _folders(unseen, "--unseen") if unseen is not None else []
    check_outputs(output, COMM_SCHEMA, [str(folder) for folder in (*folders, *judging)], force=force)
    card = learn_comm(folders, output, options, judging, progress_printer(training_words, LOG_EVERY_S, _is_last))
    end_line()
    show_report(comm_card_lines(card))
    note(f"wrote {output}; recsmith.costs.neural_comm_files.load_comm_model reads it")


@learn_command.command(name="kernels")
@click.option("--data", required=True, metavar="FILE[,FILE]", help="Kernel times of `recsmith measure kernels`.")
@click.option(
    "--traces", metavar="FOLDER[,FOLDER]", help="Captures whose overheads are taken (default: machine cpu's)."
)
@click.option("-o", "--output", required=True, metavar="NAME.safetensors", help="File to write; its card beside it.")
@count_option("--seed", default=0, least=0, help="Seed of the split and of the weights.")
@force_option
def kernels(data: str, traces: str | None, output: str, seed: int, force: bool) -> None:
    """Learn a machine from kernel times: what `recsmith predict MODEL --machine NAME.safetensors` predicts by.

    \b
    recsmith learn kernels --data kernels.json --traces trace/ -o here.safetensors
    """
    from recsmith.learning.kernels import learn_kernels
    from recsmith.learning.preparation import check_outputs
    from recsmith.prediction.machine import MACHINE_SCHEMA
    from recsmith.reports.learned_models import machine_lines

    files = [word.strip() for word in data.split(",") if word.strip()]
    folders = [word.strip() for word in (traces or "").split(",") if word.strip()]
    check_outputs(output, MACHINE_SCHEMA, [*files, *folders], force=force)
    show_report(machine_lines(learn_kernels(files, folders, output, seed)))
    note(f"wrote {output}; predict with --machine {output}")


_tables_option = click.option(
    "--tables", metavar="FOLDER", help="Workloads or plans of yours, whose tables train (default: the shared pool's)."
)
_policy_options = stack(  # for all trainings of placement policies
    click.option("--hardware", default="simulated:h100", show_default=True, metavar="H",
                 help="What costs are collected on: cpu, cuda:<gpu> or simulated:<gpu>[?noise=0.03]."),
    click.option("-o", "--output", required=True, metavar="NAME.safetensors",
                 help="File to write; its card beside it."),
    click.option("--row", default="4x50", show_default=True, metavar="DxT",
                 help="Devices x tables of training tasks."),
    count_option("--tasks", default=50, help="Training tasks."),
    _tables_option,
    count_option("--seed", default=0, least=0, help="Seed of the weights and of what is tried."),
    click.option("--budget", callback=read_time, metavar="TIME",
                 help="Stop after a time such as 10m; run again to go on."),
    force_option,
)  # fmt: skip


@learn_command.command(name="dreamshard")
@_policy_options
@count_option("--iterations", help="Place, measure, fit, improve N times.")
@count_option("--placements", help="Measured in an iteration.")
@click.option("--reward", type=click.Choice(["estimated", "measured"]), default="estimated", show_default=True,
              help="What episodes cost: by the cost network, or measured (the paper's ablation).")  # fmt: skip
def dreamshard(**options: Any) -> None:
    """Train a policy that places tables; `--planner dreamshard:NAME.safetensors` plans by it (docs/learned.md).

    A run that was ended, or killed, continues in the folder NAME.run next to the output.

    \b
    recsmith learn dreamshard --hardware simulated:h100 --output mine.safetensors
    recsmith plan tables.yaml --cluster h100:8 --planner dreamshard:mine.safetensors
    """
    _learn("dreamshard", **options)


@learn_command.command(name="autoshard")
@_policy_options
@count_option("--iterations", help="Iterations, with a checkpoint after each.")
@count_option("--answers", help="Tasks that actors place and measure in an iteration.")
@count_option("--episodes", least=2, help="Placements of each of them.")
@count_option("--actors", most=64,
              help="Processes that place and measure; 2 where measurements are simulated, otherwise 1.")  # fmt: skip
def autoshard(**options: Any) -> None:
    """Train a policy with an LSTM; `--planner autoshard:NAME.safetensors` plans by it (docs/learned.md).

    Actors are processes that place and measure; a lost one is replaced. A run that was ended, or killed, continues
    in the folder NAME.run next to the output.

    \b
    recsmith learn autoshard --hardware simulated:h100 --output mine.safetensors
    recsmith plan tables.yaml --cluster h100:8 --planner autoshard:mine.safetensors
    """
    _learn("autoshard", **options)


@learn_command.command(name="splits")
@click.option("--cost-model", metavar="M",
              help="What prices placements (default: neural:simulated-h100, on cpu neural:cpu).")  # fmt: skip
@click.option(
    "--device", default="h100", show_default=True, metavar="D", help="Device of the training tasks' clusters."
)
@click.option("-o", "--output", required=True, metavar="NAME.safetensors", help="File to write; its card beside it.")
@click.option("--sizes", metavar="DxT[,DxT]", help="Devices x tables of training tasks; 16 sizes from 2x20 to 32x400.")
@count_option("--tasks", default=4, help="Training tasks of each size.")
@_tables_option
@count_option("--iterations", help="Search, imitate, reinforce N times.")
@count_option("--imitation", least=0, help="Updates that imitate search; 0 for none.")
@count_option("--updates", least=0, help="Updates of REINFORCE; 0 for none.")
@count_option("--seed", default=0, least=0, help="Seed of the weights and of what is tried.")
@click.option("--budget", callback=read_time, metavar="TIME", help="Stop after a time such as 10m; run again to go on.")
@force_option
def splits(
    cost_model: str | None, device: str, output: str, sizes: str | None, tasks: int, tables: str | None,
    budget: float | None, force: bool, **recipe: int | None,
) -> None:  # fmt: skip
    """Train a policy of which tables are split; `--planner 'dreamshard:NAME.safetensors?splits=8'` plans by it.

    It learns from search under a cost model, and measures nothing. A run that was ended, or killed, continues in the
    folder NAME.run next to the output (docs/learned.md).

    \b
    recsmith learn splits --output mine.safetensors
    recsmith learn splits --tables jobs/ --output mine.safetensors
    recsmith plan tables.yaml --cluster h100:8 --planner 'dreamshard:mine.safetensors?splits=8'
    """
    from recsmith.learning.policies import CPU_PRICED_BY, SPLIT_SIZES, SPLITS_PRICED_BY, SplitRecipe, SplitSettings
    from recsmith.learning.policies.learn import learn_splits, of_tables
    from recsmith.learning.preparation import check_outputs
    from recsmith.planners.placing.split_policy import SCHEMA
    from recsmith.reports.learned_models import split_card_lines

    check_outputs(output, SCHEMA, [tables] if tables else [], force=force)
    named = SPLIT_SIZES if sizes is None else tuple(word.strip() for word in sizes.split(",") if word.strip())
    model = cost_model or (CPU_PRICED_BY if device == "cpu" else SPLITS_PRICED_BY)
    settings = SplitSettings(cost_model=model, device=device, sizes=named, tasks=tasks, **of_tables(tables))
    fields = {name: word for name, word in recipe.items() if word is not None}
    heard = progress_printer(split_words, LOG_EVERY_S, lambda each: each.number == each.iterations)
    card = learn_splits(settings, output, fields, budget_s=budget, on_iteration=heard)
    end_line()
    show_report(split_card_lines(card))
    if card.iterations < (wanted := SplitRecipe(**fields).iterations):
        note(f"ended after {card.iterations} of {wanted} iterations; the same command goes on")
    note(f"wrote {output}; plan with --planner 'dreamshard:{output}?splits=8'")


def _learn(
    planner: Any, hardware: str, output: str, row: str, tasks: int, tables: str | None, budget: float | None,
    force: bool, **options: Any,
) -> None:  # fmt: skip
    from recsmith.learning.policies import PolicySettings
    from recsmith.learning.policies.learn import KINDS, iterations_of, learn_policy, of_tables
    from recsmith.learning.preparation import check_outputs
    from recsmith.reports.learned_models import policy_card_lines

    check_outputs(output, KINDS[planner].schema, [tables] if tables else [], force=force)
    options = {name: word for name, word in options.items() if word is not None}
    settings = PolicySettings(hardware=hardware, row=row, tasks=tasks, **of_tables(tables))
    card = learn_policy(
        planner, settings, output, options, budget_s=budget,
        on_iteration=progress_printer(policy_words, LOG_EVERY_S, lambda each: each.number == each.iterations),
    )  # fmt: skip
    end_line()
    show_report(policy_card_lines(card))
    if card.iterations < (wanted := iterations_of(planner, settings, options)):
        note(f"ended after {card.iterations} of {wanted} iterations; the same command goes on")
    note(f"wrote {output}; plan with --planner {planner}:{output}")


def _folders(names: str, option: str) -> list[Any]:
    """Folders of measurements, from names separated by commas; a folder that holds several is replaced by those."""
    from recsmith.errors import UsageError
    from recsmith.measuring.about import folders_in, locate

    located = [locate(word.strip()) for word in names.split(",") if word.strip()]
    folders = [each for folder in located for each in folders_in(folder)]
    if not folders:
        raise UsageError(f"{option} names no folder; give one such as measurements/cpu, or several with commas between")
    return folders


def _is_last(epoch: Any) -> bool:
    return epoch.number == epoch.epochs
