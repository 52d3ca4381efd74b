"""Commands that read plans: `recsmith simulate`, `explain`, `diff`, `check` and `import`."""

from pathlib import Path
from typing import Any

import click

from recsmith.cli.options import cluster_options, force_option, format_option, group_options, inputs_of, read_group
from recsmith.cli.printing import note, print_as, print_plan


@click.command(name="simulate")
@click.argument("plan")
@click.option("--cost-model", metavar="M", help="Cost model (default: the plan's own).")
@format_option
def simulate_command(plan: str, cost_model: str | None, format_: str) -> None:
    """Price PLAN (a file, '-' for stdin): cost per device, bound and gap under a cost model.

    A file written by hand needs only workload, cluster and placements (docs/files.md).

    \b
    recsmith simulate plan.json
    recsmith simulate plan.json --format json
    """
    from recsmith.planning.simulate import simulate
    from recsmith.reports.plan_words import overfull_phase_words, overfull_words
    from recsmith.reports.plans import plan_report, price_to_raw

    priced = simulate(plan, cost_model)
    overfull = overfull_words(priced.cost) or overfull_phase_words(priced)
    if overfull:
        note(overfull)
    print_as(format_, lambda: plan_report(priced), lambda: price_to_raw(priced))


@click.command(name="explain")
@click.argument("plan")
@click.option("--table", metavar="T", help="All about one table: its cost, and its other possible placements.")
@click.option("--memory", is_flag=True, default=False, help="What the fullest rank holds in each phase of a step.")
@click.option(
    "--run", metavar="RUN", help="With --memory: the run, or its output folder, whose dense layers are counted."
)
@click.option("--cost-model", metavar="M", help="Cost model (default: the plan's own).")
@format_option
def explain_command(
    plan: str, table: str | None, memory: bool, run: str | None, cost_model: str | None, format_: str
) -> None:
    """Explain what limits the step of PLAN (a file, '-' for stdin): slowest ranks, largest terms, costliest tables.

    \b
    recsmith explain plan.json
    recsmith explain plan.json --table user_id
    recsmith explain plan.json --memory
    """
    if memory or run is not None:
        _check_memory_alone(memory, {"--table": table, "--cost-model": cost_model})
        _explain_memory(plan, run, format_)
        return
    from recsmith.analyses.explain import explain
    from recsmith.reports.explanations import explanation_report, explanation_to_raw

    explanation = explain(plan, table, cost_model)
    print_as(format_, lambda: explanation_report(explanation), lambda: explanation_to_raw(explanation))


def _check_memory_alone(memory: bool, others: dict[str, str | None]) -> None:
    """Raise UsageError for --run without --memory, and for --memory with an option of another report."""
    from recsmith.errors import UsageError

    if not memory:
        raise UsageError("--run says whose dense layers --memory counts; add --memory, or leave --run out")
    wrong = next((option for option, value in others.items() if value is not None), None)
    if wrong:
        raise UsageError(f"--memory and {wrong} ask for two different reports; leave one of them out")


def _explain_memory(plan: str, run: str | None, format_: str) -> None:
    from recsmith.analyses.step_memory import step_memory
    from recsmith.reports.step_memory import step_memory_report, step_memory_to_raw

    if run is None:
        found, choices = step_memory(plan), ()
    else:
        from recsmith.prediction.dense_choices import dense_choices
        from recsmith.training.job.dense_bytes import memory_of_run

        found, layers = memory_of_run(str(Path(run) / "run.json") if Path(run).is_dir() else run, plan)
        choices = dense_choices(found, layers)
    rows = [(choice.name, choice.costs, memory) for choice, memory in choices]
    print_as(format_, lambda: step_memory_report(found, rows), lambda: step_memory_to_raw(found, rows))


@click.command(name="diff")
@click.argument("before")
@click.argument("after")
@format_option
def diff_command(before: str, after: str, format_: str) -> None:
    """Show what changed between the plans BEFORE and AFTER: tables, weights to move, and the step's cost.

    \b
    recsmith diff a.json b.json
    """
    from recsmith.planning.simulate import diff
    from recsmith.reports.plan_differences import diff_report, diff_to_raw

    change = diff(before, after)
    print_as(format_, lambda: diff_report(change, before, after), lambda: diff_to_raw(change))


@click.command(name="check")
@click.argument("certificate")
@format_option
def check_command(certificate: str, format_: str) -> None:
    """Check the proof of a bound in CERTIFICATE (a file of `recsmith plan --certificate`), without a search.

    \b
    recsmith check proof.json
    """
    from recsmith.analyses.certificates import check_certificate
    from recsmith.reports.certificates import certificate_lines, certificate_to_raw

    checked = check_certificate(certificate)
    print_as(format_, lambda: certificate_lines(checked), lambda: certificate_to_raw(checked))


@click.command(name="import")
@click.argument("running")
@click.option("--workload", metavar="W", help="The tables of the job (default: RUNNING, if it is a planner's log).")
@cluster_options
@group_options
@click.option("--cost-model", metavar="M", help="Cost model (default: best).")
@click.option("-o", "--output", metavar="FILE", help="Write the plan to a file ('-' for stdout).")
@force_option
@format_option
def import_command(
    running: str, workload: str | None, output: str | None, force: bool, format_: str, **options: Any
) -> None:
    """Make a plan file from RUNNING, the plan that a TorchRec job runs today, with its cost, bound and gap.

    RUNNING is a file, '-' for stdin: the log of the job with the report of TorchRec's planner in it, a ShardingPlan
    dumped by `json.dump(plan._serialize(), file)`, what `print(plan)` writes, or a plan of RecSmith.

    The plan of a 2D job (--group-size) is that of one sharding group, as it was before it was given to DMPCollection,
    which renames its ranks.

    \b
    recsmith import job.log --cluster h100:8x12 -o running.json
    recsmith import dump.json --workload tables.json --cluster h100:8 -o running.json
    """
    from recsmith.files import check_target
    from recsmith.planning.simulate import price
    from recsmith.plans import PLAN_FILE
    from recsmith.problems import Constraints
    from recsmith.reports.plan_words import overfull_words
    from recsmith.reports.plans import plan_report, price_to_raw
    from recsmith.workloads import load_workload

    check_target(output, inputs=inputs_of(running, workload, *options.values()), kind=PLAN_FILE, force=force)
    found = price(
        load_workload(workload or _log_of(running), batch_size=options["batch_size"], optimizer=options["optimizer"]),
        read_group(options),
        running,
        cost_model=options["cost_model"],
        constraints=Constraints(memory=options["memory"]),
    )
    overfull = overfull_words(found.cost)
    if overfull:
        note(overfull)
    print_plan(found, output, format_, lambda: plan_report(found), lambda: price_to_raw(found))


def _log_of(running: str) -> str:
    """The running plan's own file, if it is the log of TorchRec's planner, which also names the job's tables."""
    from recsmith.errors import UsageError
    from recsmith.files import read_text
    from recsmith.workloads.torchrec_log import find_report

    if running == "-" or find_report(read_text(running), running) is None:
        raise UsageError(f"'{running}' does not name the tables of the job as a planner's log does; add --workload W")
    return running
