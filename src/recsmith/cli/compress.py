"""`recsmith compress`."""

from typing import Any

import click

from recsmith.cli.options import force_option, inputs_of, read_search, search_options
from recsmith.cli.progress import end_line, note
from recsmith.errors import UsageError

METHODS = ("quotient_remainder", "mixed_dimension", "hash")


def read_target(_: click.Context, __: click.Parameter, value: str) -> float:
    """4x or 4 as a number above 1."""
    try:
        found = float(value.removesuffix("x"))
    except ValueError:
        found = 0.0
    if not 1 < found < float("inf"):
        raise UsageError(f"--target is '{value}'; write how many times smaller, such as 4x")
    return found


@click.command(name="compress")
@click.argument("workload")
@click.option("--target", callback=read_target, required=True, metavar="4x", help="How many times fewer parameters.")
@click.option("--method", type=click.Choice(METHODS), default=METHODS[0], show_default=True, help="Method.")
@click.option("--tables", default="*", show_default=True, metavar="PATTERN", help="Which tables, with * and ?.")
@click.option("--above-rows", type=click.IntRange(min=0), default=200, show_default=True, metavar="N",
              help="Tables with no more rows stay whole.")  # fmt: skip
@click.option("--operation", type=click.Choice(["multiply", "add", "concat"]), default="add", show_default=True,
              help="How rows are put together; multiply is for bags of one id.")  # fmt: skip
@click.option("--cluster", metavar="CLUSTER", help="Plan the tables as they are and smaller, and show both.")
@search_options
@click.option("-o", "--output", metavar="FILE", help="Write the smaller workload, for plan, sweep and the rest.")
@force_option
def command(workload: str, output: str | None, force: bool, **words: Any) -> None:
    """Propose how the tables of WORKLOAD are stored smaller, and what that does to memory and step.

    \b
    recsmith compress dlrm-v2 --target 4x --cluster h100:8
    recsmith compress tables.json --target 16x --method mixed_dimension -o small.yaml
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.embeddings.workloads import compress_to
    from recsmith.files import check_target
    from recsmith.reports.compressions import compression_lines, planned_lines
    from recsmith.reports.layout import show_lines
    from recsmith.workloads import WORKLOAD_FILE, load_workload, save_workload

    check_target(output, inputs=inputs_of(workload), kind=WORKLOAD_FILE, force=force)
    asked = load_workload(workload)
    fields = {name: words[name] for name in ("tables", "above_rows")}
    if words["method"] == "quotient_remainder":
        fields["operation"] = words["operation"]
    made = compress_to(asked, words["target"], words["method"], **fields)
    show_lines(compression_lines(asked, made))
    if words["cluster"]:
        results = _planned([asked, made.workload], words)
        end_line()
        show_lines(planned_lines(results))
    if output:
        save_workload(made.workload, output)
        note(f"wrote {output}; plan it, or sweep it over numbers of devices")


def _planned(workloads: list[Any], words: dict[str, Any]) -> list[Any]:
    from recsmith.clusters import load_cluster
    from recsmith.planning import plan

    cluster = load_cluster(words["cluster"])
    return [plan(each, cluster, planner=words["planner"], **read_search(words)) for each in workloads]
