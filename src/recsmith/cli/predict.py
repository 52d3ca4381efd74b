"""`recsmith capture` and `recsmith predict`: the whole step of a training job."""

from typing import Any

import click

from recsmith.cli.options import count_option, force_option, format_option, is_run, split_commas
from recsmith.cli.printing import note, print_as
from recsmith.units import counted


@click.command(name="capture", context_settings={"ignore_unknown_options": True})
@click.argument("command_", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-o", "--output", required=True, metavar="FOLDER", help="New folder for the files of all ranks.")
@count_option("--steps", default=5, help="Timed steps.")
@count_option("--skip", default=3, least=0, help="Warm-up steps that are not captured.")
@count_option("--plain", default=10, help="Steps that are timed without the profiler, to compare.")
@force_option
def capture_command(command_: tuple[str, ...], output: str, steps: int, skip: int, plain: int, force: bool) -> None:
    """Run COMMAND and capture some steps of it on every rank: times, and what depends on what (docs/predict.md).

    The command runs until it ends by itself; a step ends when the first torch.optim optimizer steps.

    \b
    recsmith capture -o trace/ -- python train.py
    recsmith capture -o trace/ -- torchrun --nproc-per-node 2 train.py
    """
    from pathlib import Path

    from recsmith.prediction.captures import CaptureSettings, capture_command

    settings = CaptureSettings(steps=steps, plain=plain, skip=skip)
    written = capture_command(Path(output), command_, settings, force=force)
    note(f"captured {counted(steps, 'step')} of {counted(written, 'rank')}; see them: recsmith predict {output}")


@click.command(name="predict")
@click.argument("model", metavar="MODEL|TRACE")
@click.option("--plan", metavar="PLAN", help="Plan of the tables; a capture is priced under it.")
@count_option("--ranks", help="Ranks of a model without tables.")
@click.option("--batch", callback=split_commas, metavar="N[,N]", help="Samples a rank; several are shown side by side.")
@click.option("--machine", default=None, metavar="M", help="cpu (default), or a .safetensors file of `learn kernels`.")
@click.option("--cluster", metavar="C", help="Carry the step over from the plan's cluster to this one.")
@click.option("--calibrate", metavar="TRACE", help="A captured step that corrects the machine.")
@click.option("--cost-model", metavar="M", help="Cost model that prices embedding kernels, such as neural:cpu.")
@click.option("--what-if", "what_if", metavar="CHANGES", help="Such as link=2x,kernel:gemm=0.5x,overhead=0.")
@click.option("--optimizer", metavar="NAME",
              help="Report what this optimizer of dense layers adds to the step of MODEL.")  # fmt: skip
@count_option("--towers", least=2, metavar="RATIO",
              help="Say whether towers of this ratio pay under --plan, made by plan --towers HOSTS.")  # fmt: skip
@click.option("--link", metavar="RATE", help="Of a host, for --towers, such as 25Gbit/s (default: that of the plan).")
@click.option("--servers", type=click.IntRange(min=1), default=None, metavar="N",
              help="Report the cost and gain of tables on this many servers, compared with --plan.")  # fmt: skip
@click.option("--timeline", metavar="FILE.json", help="Write the step as a timeline for ui.perfetto.dev.")
@format_option
def predict_command(model: str, format_: str, **options: Any) -> None:
    """Predict the time of a training step: of MODEL, a file of sizes, or of a folder that `recsmith capture` wrote.

    It prints the step, what its critical path is made of, and for each rank how long kernels run, how long only
    communication runs, and how long neither does. In --what-if the factor of a link scales its speed, all other factors
    scale times (docs/predict.md).

    \b
    recsmith predict trace/ --what-if link=2x,overhead:T1=0
    recsmith predict trace/ --plan other.json --batch 512,1024
    recsmith predict trace/ --plan plan.json --cluster h200:8
    recsmith predict dlrm.yaml --plan plan.json --batch 512,1024,2048
    recsmith predict mlp.yaml --ranks 2 --calibrate trace/ --timeline step.json
    recsmith predict dlrm.yaml --plan plan.json --towers 8 --link 25Gbit/s
    recsmith predict trace/ --plan plan.json --servers 2
    """
    from recsmith.files import check_target
    from recsmith.prediction.traces import is_capture
    from recsmith.prediction.what_if import parse_what_ifs

    if is_run(model):
        raise _of_run(model, options)
    check_target(options["timeline"], kind=rb'\{"displayTimeUnit"', inputs=[model])
    what_ifs = parse_what_ifs(options["what_if"]) if options["what_if"] is not None else ()
    rows = _of_trace(model, options, what_ifs) if is_capture(model) else _of_model(model, options, what_ifs)
    rows = _with_towers(rows, options) if options["towers"] is not None or options["link"] is not None else rows
    rows = rows if options["servers"] is None else _with_servers(rows, options)
    _show(rows, options["timeline"], format_)


def _of_run(run: str, options: dict[str, Any]) -> Exception:
    """The UsageError for a run file given as MODEL: it names the command that predicts the run's step."""
    from recsmith.errors import UsageError

    asked = f" --set plan={options['plan']}" if options["plan"] else ""
    if options["towers"] is not None:
        module = f"{{name: towers, ratio: {options['towers']}}}"
        asked = f"{asked or ' --set plan=PLAN'} --set 'model.table_module={module}'"
    return UsageError(
        f"'{run}' is a run, whose step `recsmith train {run} --dry-run{asked}` predicts; MODEL is a file of sizes or a "
        "capture (docs/predict.md)"
    )


def _with_servers(rows: list[Any], options: dict[str, Any]) -> list[Any]:
    """Predictions, each with a note on what tables on servers would cost and gain."""
    from dataclasses import replace

    from recsmith.errors import UsageError
    from recsmith.plans import load_plan
    from recsmith.prediction.servers import servers_line

    if options["plan"] is None:
        raise UsageError("--servers needs --plan PLAN, whose tables the servers would hold")
    plan = load_plan(options["plan"])
    if plan.cluster.device.kind != "cpu":
        raise UsageError(
            f"--servers is for CPUs, as remote of a run is, and the plan is of {plan.cluster.device.name}; leave it out"
        )
    return [
        (batch, replace(row, notes=(*row.notes, servers_line(
            plan, options["servers"], batch_size=batch, step_s=row.step_s,
            exchanges_s=sum(seconds for term, seconds in row.terms.items() if term.startswith("all_to_all")),
            own_s=[sum(each.seconds for each in tape) for tape in row.walk.graph.ranks],
        ))))
        for batch, row in rows
    ]  # fmt: skip


def _with_towers(rows: list[Any], options: dict[str, Any]) -> list[Any]:
    """Predictions, each with a note on how much time towers would save."""
    from dataclasses import replace

    from recsmith.errors import UsageError
    from recsmith.plans import load_plan
    from recsmith.prediction.towers import tower_steps
    from recsmith.units import parse_speed

    if options["towers"] is None:
        raise UsageError("--link is the link of --towers RATIO; add it, or leave --link out")
    if options["plan"] is None:
        raise UsageError("--towers needs --plan PLAN, one of `recsmith plan --towers HOSTS`")
    plan, link = load_plan(options["plan"]), None if options["link"] is None else parse_speed(options["link"])
    made: list[Any] = []
    for batch, row in rows:
        under = replace(plan, workload=replace(plan.workload, batch_size=batch))
        dense = sum(each.bytes for each in row.walk.graph.collectives if each.name == "all_reduce") / 4
        found = tower_steps(under, options["towers"], step_s=row.step_s, link=link, dense=dense)
        made.append((batch, replace(row, notes=(*row.notes, str(found)))))
    return made


def _of_trace(folder: str, options: dict[str, Any], what_ifs: Any) -> list[Any]:
    from recsmith.errors import UsageError
    from recsmith.prediction.predictions import predict_capture

    odd = next((name for name in ("ranks", "calibrate", "cost_model", "optimizer") if options[name] is not None), None)
    if odd is not None:
        raise UsageError(
            f"--{odd.replace('_', '-')} is of a described model, and '{folder}' is a capture; leave it out, or "
            f"describe the model in a file: recsmith predict MODEL --calibrate {folder}"
        )
    if options["machine"] is not None and options["plan"] is None and not options["batch"]:
        raise UsageError("a capture is replayed with its own times; --machine is of use beside --plan or --batch")
    return predict_capture(
        folder, plan=options["plan"], batches=_batches(options["batch"]), machine=options["machine"] or "cpu",
        cluster=options["cluster"], what_ifs=what_ifs,
    )  # fmt: skip


def _batches(sizes: tuple[str, ...] | None) -> list[int]:
    from recsmith.errors import UsageError

    if not all(each.isdigit() for each in sizes or ()):
        raise UsageError(f"--batch is {','.join(sizes or ())}; give whole numbers of samples a rank, such as 512,1024")
    return [int(each) for each in sizes or ()]


def _of_model(model: str, options: dict[str, Any], what_ifs: Any) -> list[Any]:
    from recsmith.errors import UsageError
    from recsmith.prediction.predictions import predict_model

    if options["plan"] and options["ranks"] is not None:
        raise UsageError("--plan says how many ranks there are; leave out --ranks")
    rows = predict_model(
        model, plan=options["plan"], ranks=options["ranks"] or 1, batches=_batches(options["batch"]),
        machine=options["machine"] or "cpu", calibrate_by=options["calibrate"], cost_model=options["cost_model"],
        cluster=options["cluster"], what_ifs=what_ifs,
    )  # fmt: skip
    return rows if options["optimizer"] is None else [(batch, _with_optimizer(model, options, row))
                                                      for batch, row in rows]  # fmt: skip


def _with_optimizer(model: str, options: dict[str, Any], row: Any) -> Any:
    """A prediction with a note on what an optimizer for dense layers adds to the step."""
    from dataclasses import replace

    from recsmith._components import find
    from recsmith.clusters import load_cluster
    from recsmith.plans import load_plan
    from recsmith.prediction.models import layer_shapes, load_model
    from recsmith.training.seams import PREDICTED

    plan = load_plan(options["plan"]) if options["plan"] else None
    tables = plan.workload.tables if plan else ()
    features = sum(len(table.features) for table in tables)
    shapes = layer_shapes(load_model(model), features, tables[0].embedding_dim if tables else 0)
    cluster = load_cluster(options["cluster"]) if options["cluster"] else None
    where = cluster or (plan.cluster if plan else load_cluster(f"cpu:{options['ranks'] or 1}"))
    predicted = find(PREDICTED, options["optimizer"])(shapes, where, row.step_s)
    return replace(row, notes=(*row.notes, predicted))


def _show(rows: list[Any], timeline: str | None, format_: str) -> None:
    import json

    from recsmith.errors import UsageError
    from recsmith.files import write_text
    from recsmith.prediction.predict import timeline as made_timeline
    from recsmith.reports.predictions import prediction_report, prediction_to_raw, sweep_report, sweep_to_raw

    if timeline and len(rows) > 1:
        raise UsageError(f"--timeline shows one step, and --batch asks for {len(rows)}; give one batch size")
    if len(rows) == 1:
        print_as(format_, lambda: prediction_report(rows[0][1]), lambda: prediction_to_raw(rows[0][1]))
    else:
        print_as(format_, lambda: sweep_report(rows), lambda: sweep_to_raw(rows))
    if timeline:
        write_text(timeline, json.dumps(made_timeline(rows[0][1].walk)))
