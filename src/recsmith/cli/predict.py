"""`recsmith predict`."""

from typing import Any

import click

from recsmith.cli.options import format_option, words


@click.command(name="predict")
@click.argument("model", metavar="MODEL|TRACE")
@click.option("--plan", metavar="PLAN", help="Plan of the tables; a capture is priced under it.")
@click.option("--ranks", type=click.IntRange(min=1), default=None, metavar="N", help="Ranks of a model without tables.")
@click.option("--batch", callback=words, metavar="N[,N]", help="Samples a rank; several are shown side by side.")
@click.option("--machine", default=None, metavar="M", help="cpu (default), or a .safetensors file of `learn kernels`.")
@click.option("--cluster", metavar="C", help="Carry the step over from the plan's cluster to this one.")
@click.option("--calibrate", metavar="TRACE", help="A captured step that corrects the machine.")
@click.option("--cost-model", metavar="M", help="Cost model that prices embedding kernels, such as neural:cpu.")
@click.option("--what-if", "what_if", metavar="CHANGES", help="Such as link=2x,kernel:gemm=0.5x,overhead=0.")
@click.option("--timeline", metavar="FILE.json", help="Write the step as a timeline for ui.perfetto.dev.")
@format_option
def command(model: str, format_: str, **options: Any) -> None:
    """Predict the time of a training step: of MODEL, a file of sizes, or of a folder that `recsmith capture` wrote.

    It prints the step, what its critical path is made of, and for each rank how long kernels run, how long only
    communication runs, and how long neither does. In --what-if a link's factor is one of speed, all others are of time
    (docs/predict.md).

    \b
    recsmith predict trace/ --what-if link=2x,overhead:T1=0
    recsmith predict trace/ --plan other.json --batch 512,1024
    recsmith predict trace/ --plan plan.json --cluster h200:8
    recsmith predict dlrm.yaml --plan plan.json --batch 512,1024,2048
    recsmith predict mlp.yaml --ranks 2 --calibrate trace/ --timeline step.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import check_target
    from recsmith.prediction.traces import is_capture
    from recsmith.prediction.what_if import parse_what_ifs

    check_target(options["timeline"], kind=rb'\{"displayTimeUnit"', inputs=[model])
    what_ifs = parse_what_ifs(options["what_if"]) if options["what_if"] is not None else ()
    rows = _of_trace(model, options, what_ifs) if is_capture(model) else _of_model(model, options, what_ifs)
    _show(rows, options["timeline"], format_)


def _of_trace(folder: str, options: dict[str, Any], what_ifs: Any) -> list[Any]:
    from recsmith.errors import UsageError
    from recsmith.prediction.captured_steps import predict_capture

    odd = next((name for name in ("ranks", "calibrate", "cost_model") if options[name] is not None), None)
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


def _batches(words: tuple[str, ...] | None) -> list[int]:
    from recsmith.errors import UsageError

    if not all(each.isdigit() for each in words or ()):
        raise UsageError(f"--batch is {','.join(words or ())}; give whole numbers of samples a rank, such as 512,1024")
    return [int(each) for each in words or ()]


def _of_model(model: str, options: dict[str, Any], what_ifs: Any) -> list[Any]:
    from recsmith.errors import UsageError
    from recsmith.prediction.described import predict_model

    if options["plan"] and options["ranks"] is not None:
        raise UsageError("--plan says how many ranks there are; leave out --ranks")
    return predict_model(
        model, plan=options["plan"], ranks=options["ranks"] or 1, batches=_batches(options["batch"]),
        machine=options["machine"] or "cpu", calibrate_by=options["calibrate"], cost_model=options["cost_model"],
        cluster=options["cluster"], what_ifs=what_ifs,
    )  # fmt: skip


def _show(rows: list[Any], timeline: str | None, format_: str) -> None:
    import json

    from recsmith.errors import UsageError
    from recsmith.files import dump_json, write_text
    from recsmith.prediction.timeline import timeline as made_timeline
    from recsmith.reports.layout import show
    from recsmith.reports.predictions import prediction_report, prediction_to_raw, sweep_report, sweep_to_raw

    if timeline and len(rows) > 1:
        raise UsageError(f"--timeline shows one step, and --batch asks for {len(rows)}; give one batch size")
    one = len(rows) == 1
    if format_ == "json":
        click.echo(dump_json(prediction_to_raw(rows[0][1]) if one else sweep_to_raw(rows)), nl=False)
    else:
        show(prediction_report(rows[0][1]) if one else sweep_report(rows))
    if timeline:
        write_text(timeline, json.dumps(made_timeline(rows[0][1].walk)))
