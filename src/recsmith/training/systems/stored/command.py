"""The command `recsmith compress`."""

from pathlib import Path
from typing import Any

import click

from recsmith.cli.live import live
from recsmith.cli.options import count_option, force_option, inputs_of, read_search, search_options
from recsmith.cli.printing import end_line, note, search_printer, show_report
from recsmith.errors import UsageError

METHODS = ("quotient_remainder", "mixed_dimension", "hash", "learned_hash")  # methods that a target or data can set up


class MethodName(click.Choice[str]):
    """One of these methods, or 'module:Class' of the user's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is given."""
        return value if ":" in str(value) else super().convert(value, param, ctx)


def read_target(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Parse 4x or 4 as a number above 1."""
    if value is None:
        return None
    try:
        found = float(value.removesuffix("x"))
    except ValueError:
        found = 0.0
    if not 1 < found < float("inf"):
        raise UsageError(f"--target is '{value}'; write how many times smaller, such as 4x")
    return found


@click.command(name="compress")
@click.argument("workload", required=False)
@click.option("--target", callback=read_target, metavar="4x", help="How many times fewer parameters.")
@click.option(
    "--method",
    type=MethodName(METHODS),
    default=METHODS[0],
    show_default=True,
    help="Method, or module:Class of yours.",
)
@click.option("--tables", default="*", show_default=True, metavar="PATTERN", help="Which tables, with * and ?.")
@count_option("--above-rows", default=200, least=0, help="Tables with no more rows stay whole.")
@click.option("--operation", type=click.Choice(["multiply", "add", "concat", "generate"]), default="add",
              show_default=True, help="How rows are put together; multiply is for bags of one id.")  # fmt: skip
@click.option(
    "--data", metavar="RUN_OR_DATA", help="A run, or training data, to learn which ids are popular or behave alike."
)
@click.option("--run", "run_file", metavar="FILE", help="Write a run that trains the smaller tables; needs --data.")
@click.option("--tune", "tuned", metavar="FOLDER", help="Train the run of --data by all --methods and --factors, "
              "and as it is: a curve of AUC against bytes.")  # fmt: skip
@click.option("--relearn", "relearned", metavar="FOLDER", help="Learn the hashes of the run of --data again, "
              "and convert its newest checkpoint, so that training can continue.")  # fmt: skip
@click.option("--methods", default=",".join(METHODS), show_default=True, metavar="A,B", help="Methods of --tune.")
@click.option("--factors", default="2,4,8,16", show_default=True, metavar="N,M", help="Factors of --tune.")
@count_option("--seeds", default=3, help="Seeds of --tune: trainings of each method and factor.")
@click.option("--cluster", metavar="CLUSTER", help="Plan the tables as they are and compressed, and show both.")
@search_options
@click.option("-o", "--output", metavar="FILE", help="Write the smaller workload, for plan, sweep and the rest.")
@force_option
def compress_command(
    workload: str | None, output: str | None, force: bool, data: str | None, run_file: str | None, tuned: str | None,
    relearned: str | None, **options: Any,
) -> None:  # fmt: skip
    """Propose how to store the tables of WORKLOAD in less memory, and show the effect on memory and step.

    \b
    recsmith compress dlrm-v2 --target 4x --cluster h100:8
    recsmith compress tables.json --target 16x --method mixed_dimension -o small.yaml
    recsmith compress --data run.yaml --target 8x --method learned_hash --run small-run.yaml
    recsmith compress --data run.yaml --tune curve --factors 2,4,8 --seeds 5
    recsmith compress --data run.yaml --relearn runs/next
    """
    from recsmith.embeddings.compression import method_of
    from recsmith.files import check_target
    from recsmith.files.targets import starts_with_schema
    from recsmith.reports.compressions import compression_lines, planned_lines
    from recsmith.training.run import SCHEMA as RUN_SCHEMA
    from recsmith.workloads import WORKLOAD_FILE, save_workload

    if tuned is not None:
        if data is None or workload is not None or run_file is not None:
            raise UsageError("--tune trains the run of --data, whose own tables it takes; give it --data RUN alone")
        tune(data, tuned, options, METHODS)
        return
    if relearned is not None:
        _relearn(data, relearned, alone=workload is None and run_file is None and options["target"] is None)
        return
    _check_options(workload, data, run_file, options)
    check_target(output, inputs=[*(inputs_of(workload) if workload else []), data], kind=WORKLOAD_FILE, force=force)
    check_target(run_file, inputs=[data, output], kind=starts_with_schema(RUN_SCHEMA), force=force)
    fields = {name: options[name] for name in ("tables", "above_rows", "operation")}
    if "operation" not in method_of(options["method"]).reads:
        del fields["operation"]
    with live("looking at the tables"):
        asked, made = _made(workload, data, run_file, options, fields)
    show_report(compression_lines(asked, made))
    if options["cluster"]:
        with live("planning the tables as they are, and smaller"):
            results = _planned([asked, made.workload], options)
        end_line()
        show_report(planned_lines(results))
    if output:
        save_workload(made.workload, output)
        note(f"wrote {output}; plan it, or sweep it over numbers of devices")


def _relearn(data: str | None, folder: str, *, alone: bool) -> None:
    if data is None or not alone:
        raise UsageError("--relearn goes on with the run of --data as it is; give it --data RUN alone")
    from recsmith.adapters.installed import require_torchrec
    from recsmith.training.run import load_run

    require_torchrec()
    from recsmith.training.systems.stored.relearning import RUN, relearn

    relearn(load_run(data), folder, on_progress=note)
    note(f"wrote {folder}; recsmith train {folder}/{RUN} goes on")


def _check_options(workload: str | None, data: str | None, run_file: str | None, options: dict[str, Any]) -> None:
    if options["target"] is None:
        raise UsageError("give --target, how many times smaller, such as 4x; or --tune, which compares --factors")
    if workload is None and data is None:
        raise UsageError("name a workload, or a run or data by --data, whose tables are then taken")
    if (run_file is None) != (data is None):
        raise UsageError("--data and --run go together: a run is written for data, and data is read for a run")
    if options["method"] == "learned_hash" and data is None:
        raise UsageError("learned_hash learns from data which ids behave alike; give --data and --run")


def _made(
    workload: str | None, data: str | None, run_file: str | None, options: dict[str, Any], fields: dict[str, Any]
) -> tuple[Any, Any]:
    """The workload and its compressed form. Writes the run that trains it, if one is asked for."""
    from recsmith.embeddings.workloads import compress_to
    from recsmith.workloads import load_workload

    asked = None if workload is None else load_workload(workload)
    if data is None or run_file is None:
        return asked, compress_to(asked, options["target"], options["method"], **fields)  # type: ignore[arg-type]
    from recsmith.training.run import save_run
    from recsmith.training.systems.stored.compressing import data_run, propose, run_workload

    run = data_run(data, asked)
    asked = run_workload(run) if asked is None else asked
    maps = f"{run_file.removesuffix('.yaml').removesuffix('.json')}.maps.safetensors"
    proposal = propose(run, asked, options["target"], options["method"], maps, on_progress=note, **fields)
    save_run(proposal.run, run_file)
    note(
        f"wrote {run_file}"
        + (f" and {maps}, its maps of ids" if proposal.maps else "")
        + f"; recsmith train {run_file}"
    )
    return asked, proposal.compressed


def _planned(workloads: list[Any], options: dict[str, Any]) -> list[Any]:
    from recsmith.clusters import load_cluster
    from recsmith.planning import plan

    cluster = load_cluster(options["cluster"])
    asked: dict[str, Any] = {"planner": options["planner"], **read_search(options)}
    return [plan(each, cluster, **asked, on_improve=search_printer()) for each in workloads]


def read_factors(text: str) -> list[float]:
    """Parse '2,4,8' or '2x,4x' as numbers above 1."""
    try:
        found = [float(word.strip().removesuffix("x")) for word in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(1 < factor < float("inf") for factor in found):
        raise UsageError(f"--factors is '{text}'; write how many times smaller, such as 2,4,8")
    return found


def read_methods(text: str, known: tuple[str, ...]) -> list[str]:
    """Parse methods separated by commas."""
    found = list(dict.fromkeys(word.strip() for word in text.split(",")))
    odd = next((name for name in found if name not in known), None)
    if odd is not None:
        raise UsageError(f"--methods names '{odd}'; known: {', '.join(known)}")
    return found


def tune(data: str, folder: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    """Train what is asked for, print the curve, and write curve.json and curve.svg into the folder."""
    from recsmith.files import dump_json, write_text
    from recsmith.reports.compressions import curve_lines, curve_picture
    from recsmith.training.systems.stored.compressing import data_run
    from recsmith.training.systems.stored.curve import compression_curve, curve_to_raw

    methods, factors = read_methods(options["methods"], known), read_factors(options["factors"])
    fields = {name: options[name] for name in ("tables", "above_rows", "operation")}
    curve = compression_curve(
        data_run(data, None), methods, factors, options["seeds"], folder, on_progress=note, **fields
    )
    end_line()
    show_report(curve_lines(curve))
    write_text(str(Path(folder) / "curve.json"), dump_json(curve_to_raw(curve)))
    write_text(str(Path(folder) / "curve.svg"), curve_picture(curve))
    note(f"wrote {folder}/curve.json and {folder}/curve.svg; the same command goes on where it was ended")
