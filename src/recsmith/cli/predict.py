"""`recsmith predict`."""

from typing import Any

import click

from recsmith.cli.options import format_option


@click.command(name="predict")
@click.argument("trace", metavar="TRACE")
@click.option("--what-if", "what_if", metavar="CHANGES", help="Such as link=2x,kernel:gemm=0.5x,overhead=0.")
@click.option("--timeline", metavar="FILE.json", help="Write the step as a timeline for ui.perfetto.dev.")
@format_option
def command(trace: str, format_: str, **words: Any) -> None:
    """Predict the time of a training step of TRACE, a folder that `recsmith capture` wrote (docs/predict.md).

    It prints the step, what its critical path is made of, and for each rank how long kernels run, how long only
    communication runs, and how long neither does. In --what-if a link's factor is one of speed, all others are of time.

    \b
    recsmith predict trace/
    recsmith predict trace/ --what-if link=2x,overhead:T1=0
    recsmith predict trace/ --timeline step.json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import check_target
    from recsmith.prediction.predict import predict_graph
    from recsmith.prediction.traces import load_capture
    from recsmith.prediction.what_if import parse_what_ifs

    check_target(words["timeline"], kind=rb'\{"displayTimeUnit"')
    what_ifs = parse_what_ifs(words["what_if"]) if words["what_if"] is not None else ()
    captured = load_capture(trace)
    _show(predict_graph(captured.graph, what_ifs, captured.notes), words["timeline"], format_)


def _show(found: Any, timeline: str | None, format_: str) -> None:
    import json

    from recsmith.files import dump_json, write_text
    from recsmith.prediction.timeline import timeline as made_timeline
    from recsmith.reports.layout import show
    from recsmith.reports.predictions import prediction_report, prediction_to_raw

    if format_ == "json":
        click.echo(dump_json(prediction_to_raw(found)), nl=False)
    else:
        show(prediction_report(found))
    if timeline:
        write_text(timeline, json.dumps(made_timeline(found.walk)))
