"""`recsmith plan`."""

from dataclasses import replace
from typing import Any

import click

from recsmith.cli.certifying import Certifying
from recsmith.cli.live import live
from recsmith.cli.options import (
    GroupedCommand,
    command_age_s,
    force_option,
    format_option,
    inputs_of,
    is_run,
    left_of_limit,
    problem_options,
    read_problem,
    read_search,
    read_towers,
    search_options,
    stash_options,
    tower_options,
)
from recsmith.cli.printing import (
    end_line,
    note,
    print_as,
    print_plan,
    proof_printer,
    search_printer,
    verdict_printer,
)

ADAPT = (
    "recsmith measure compute --hardware cpu --budget 5m -o here && "
    "recsmith learn cost --data here -o here.safetensors --start {start}"
)
TRAIN_TOWERS = (
    "what towers would bring under it: recsmith train {run} --dry-run --set plan={plan} "
    "--set 'model.table_module={{name: towers, ratio: auto}}'"
)


@click.command(name="plan", cls=GroupedCommand)
@click.argument("workload")
@problem_options
@stash_options
@search_options
@click.option("--objective", type=click.Choice(["cost", "step_time"]), default="cost", show_default=True,
              help="The cost of the tables alone, or the predicted time of the whole step.")  # fmt: skip
@click.option("--step", metavar="MODEL|TRACE", help="The step of --objective step_time: a file of sizes, or a capture.")
@click.option("--machine", metavar="M", help="What predicts the step: cpu (default), or a file of `learn kernels`.")
@click.option(
    "--prove", is_flag=True, default=False, help="Also look for a better bound, for a minute or half of the time limit."
)
@click.option("--certificate", metavar="FILE", help="Write the proof of the bound, which `recsmith check` verifies.")
@click.option("--what-if", "what_if", metavar="CHANGE", help="Compare with a change, such as data_type=bf16.")
@tower_options
@click.option("-o", "--output", metavar="FILE", help="Write the plan to a file ('-' for stdout).")
@force_option
@click.option(
    "-v", "--verbose", is_flag=True, default=False, help="Also show each device, memory, search and assumptions."
)
@format_option
def plan_command(
    workload: str, prove: bool, certificate: str | None, what_if: str | None, output: str | None, force: bool,
    verbose: bool, format_: str, **options: Any,
) -> None:  # fmt: skip
    """Find a sharding plan for WORKLOAD on a cluster.

    WORKLOAD is a built-in (dlrm-v2, dlrm-v4, criteo-1tb, criteo-kaggle, nvidia-tiny .. nvidia-colossal, ...) or a
    file: YAML, JSON, CSV, a job's log with the report of TorchRec's planner in it, or a run file of `recsmith train`,
    whose tables and batch size are used; '-' reads stdin.

    \b
    recsmith plan dlrm-v2 --cluster h100:8
    recsmith plan dlrm-v2 --cluster h100:8 -v
    recsmith plan tables.json --cluster h100:8x12 --hbm 60GiB -o plan.json
    recsmith plan tables.json --cluster cpu:2 --objective step_time --step trace/
    recsmith plan dlrm-v2 --cluster h100:8 --what-if data_type=bf16
    recsmith plan run.yaml --cluster h100:8x2 --towers 2 -o plan.json
    recsmith plan tables.json --cluster h100:8 --reserve 40GiB --stash weights --activations 30GiB
    """
    from recsmith.files import check_target
    from recsmith.planning import plan
    from recsmith.plans import PLAN_FILE

    inputs = inputs_of(workload, *options.values())
    check_target(output, inputs=inputs, kind=PLAN_FILE, force=force)
    if certificate is not None:
        from recsmith.plans.certificates import CERTIFICATE_FILE

        check_target(certificate, inputs=[*inputs, output], kind=CERTIFICATE_FILE, force=force)
    towers = read_towers(options)
    step = _step(options, prove)
    _check_stash(options, alone=towers is None and step is None and what_if is None)
    asked: dict[str, Any] = {**read_problem(workload, options), **read_search(options), "planner": options["planner"]}
    asked["time_limit_s"] = left_of_limit(
        asked["time_limit_s"], len(asked["workload"].tables), written=bool(output) or format_ == "json"
    )
    if what_if is not None:
        refused = step is not None or prove or towers is not None or bool(output or certificate)
        _compare_data_types(what_if, asked, format_, refused=refused)
        return
    with live("planning", command_age_s):
        if towers is not None:
            result = _with_towers(towers, asked, refused=step is not None or prove)
        elif step is None:
            result = plan(
                **asked, prove=prove, on_improve=search_printer(), on_bound=proof_printer(), on_proof=verdict_printer()
            )
        else:
            result = _for_step(step, asked)
    from recsmith.reports.plans import kernel_model, result_to_raw

    end_line()
    certifying = Certifying(certificate, prove=prove)
    if asked["time_limit_s"] is None and not result.truncated:  # with a time limit, the plan comes first
        result = replace(result, plan=certifying.bounded(result.plan))
    note_other_processor(kernel_model(result.plan.cost_model, result.plan))
    if result.truncated:
        note("the search was cut short; this is the best plan by then")
    print_plan(result.plan, output, format_, lambda: _report(result, output, verbose), lambda: result_to_raw(result))
    if towers is not None and is_run(workload) and output not in (None, "-"):
        note(TRAIN_TOWERS.format(run=workload, plan=output))
    certifying.write(result.plan)


def _check_stash(options: dict[str, Any], *, alone: bool) -> None:
    from recsmith.errors import UsageError

    if options["stash"] is not None and not alone:
        raise UsageError("--stash searches several times by itself; leave it, or --objective, --towers and --what-if")


def _compare_data_types(what_if: str, asked: dict[str, Any], format_: str, *, refused: bool) -> None:
    from recsmith.analyses.data_types import compare_data_types, parse_data_type
    from recsmith.errors import UsageError
    from recsmith.reports.comparisons import data_types_report, data_types_to_raw

    if refused:
        raise UsageError("--what-if compares plans and writes none; leave it or -o, --prove, --towers, --objective")
    with live("planning four ways"):
        forms = compare_data_types(data_type=parse_data_type(what_if), **asked)
    print_as(format_, lambda: data_types_report(forms), lambda: data_types_to_raw(forms))


def _with_towers(towers: Any, asked: dict[str, Any], *, refused: bool) -> Any:
    from recsmith.analyses.towers import plan_towers
    from recsmith.errors import UsageError

    if refused:
        raise UsageError("--towers searches twice, for costs and then for towers; leave --prove and --objective out")
    return plan_towers(towers, **asked, on_improve=search_printer())


def _step(options: dict[str, Any], prove: bool) -> Any:
    """The predictor of a plan's step time; None if the objective is the cost of the tables."""
    from recsmith.errors import UsageError

    step, machine = options.pop("step"), options.pop("machine")
    if options.pop("objective") == "cost":
        if step is not None or machine is not None:
            raise UsageError("--step and --machine are of --objective step_time; add it, or leave them out")
        return None
    if step is None:
        raise UsageError("--objective step_time needs --step MODEL (a file of sizes) or --step TRACE (a capture)")
    if prove:
        raise UsageError("--prove bounds the cost of the tables, not a predicted step; leave it or --objective out")
    from recsmith.prediction.step_objective import TYPES, step_predictor  # imported only for this objective

    options["types"] = options["types"] or TYPES
    return step_predictor(step, machine or "cpu")


def _for_step(predicted: Any, asked: dict[str, Any]) -> Any:
    from recsmith.prediction.step_objective import plan_for_step
    from recsmith.units import format_time

    found = plan_for_step(predicted, **asked, on_improve=search_printer())
    end_line()
    note(
        f"the step is predicted at {format_time(found.step_s)}, the shortest of {len(found.steps)} searches; with the "
        f"plan that costs least it is {format_time(found.steps[0][1])}"
    )
    return found.result


def _report(result: Any, output: str | None, verbose: bool) -> Any:
    """The five-line summary of the plan, or with --verbose the whole report."""
    from recsmith.reports.plan_summary import plan_summary
    from recsmith.reports.plans import plan_report
    from recsmith.units import counted

    if not verbose:
        return plan_summary(result.plan, output, result.left_out)
    written = f", written to {output}" if output else ""
    tries = counted(result.iterations, "try", "tries")
    lost = "".join(f"; {reason}" for reason in result.left_out)
    plan = result.plan
    return plan_report(plan, f"planner {plan.planner}, {tries}, {result.elapsed_s:.2f} s{written}{lost}")


def note_other_processor(cost_model: str) -> None:
    """Print a note if the kernels were measured on another CPU than this machine's, and how to adapt the cost model."""
    from recsmith.costs.neural.files import find_model, load_model
    from recsmith.costs.weight_files import PREFIX
    from recsmith.jobs.machine import describe_cpu

    if not cost_model.startswith(PREFIX):
        return
    name = cost_model.removeprefix(PREFIX)
    card, here = load_model(find_model(name))[1], describe_cpu()
    if card.hardware != "cpu" or _processor(card.device) == _processor(here):
        return
    note(
        f"cost model {cost_model} was measured on {card.device}; this machine is {here}: where processors of the "
        "cluster are not the measured ones, steps are off by more than one factor (docs/learning.md)"
    )
    note(f"to adapt it on one of them in five minutes: {ADAPT.format(start=name)}")


def _processor(device: str) -> tuple[str, str]:
    """Name and last-level cache of a processor; the number of cores is left out, as it differs between machines."""
    parts = device.split(", ")
    return parts[0], parts[-1]
