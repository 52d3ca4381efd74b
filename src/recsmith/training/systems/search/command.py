"""The command `recsmith search`."""

from pathlib import Path
from typing import Any

import click

from recsmith.cli.options import count_option, format_option, limit_options, read_search, split_commas
from recsmith.cli.printing import end_line, note, print_as, say, show_report
from recsmith.errors import UsageError


def read_share(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Parse 40% or 0.4 as a share."""
    if value is None:
        return None
    try:
        return float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"'{value}' is no share; write one such as 40% or 0.4") from None


def numbers(kind: type) -> Any:
    """Return the callback of an option that takes numbers separated by commas."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, ...]:
        words = split_commas(context, parameter, value) or ()
        try:
            return tuple(kind(word) for word in words)
        except ValueError:
            raise UsageError(f"--{parameter.name} is '{value}'; write numbers, such as 4,8 or 0.1,0.5") from None

    return read


@click.command(name="search")
@click.argument("run")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace a value of the run.")
@click.option("--under", callback=read_share, default="100%", metavar="40%",
              help="Highest cost of a candidate, as a share of the run's price.")  # fmt: skip
@click.option("--price", type=click.Choice(["auto", "step", "bytes"]), default="auto", show_default=True,
              help="What to reduce: the predicted step (auto: if that saves 2 %), or bytes of weights.")  # fmt: skip
@click.option("--cluster", "-c", metavar="C",
              help="The cluster of prices (default: that of the run's plan file, or this machine).")  # fmt: skip
@click.option("--widths", callback=numbers(int), metavar="4,8", help="Columns of tables (default: halves, down to 4).")
@click.option("--rows", callback=numbers(float), metavar="0.1,0.5",
              help="Shares of the rows of tables that may be kept, by a hash (default: all rows).")  # fmt: skip
@click.option("--tables", default="*", show_default=True, metavar="PATTERN", help="Tables with a choice, with * and ?.")
@click.option("--layers", callback=numbers(float), metavar="0.5,1",
              help="Shares of the widths of layers bottom and top (default: no choice).")  # fmt: skip
@click.option("--skip", is_flag=True, default=False, help="Layers no narrower than what they read may be left out.")
@click.option("--coefficient", type=float, default=0.1, show_default=True, metavar="X", help="Weight of the price.")
@count_option("--retrain", metavar="SEEDS",
              help="Train samples, uniform widths and the power rule from scratch, and write a page.")  # fmt: skip
@limit_options
@click.option("--dry-run", is_flag=True, default=False, help="Show the space and its prices; train nothing.")
@click.option("-o", "--output", default="search", show_default=True, metavar="FOLDER", help="Folder to go on in.")
@format_option
def search_command(run: str, settings: tuple[str, ...], output: str, format_: str, **options: Any) -> None:
    """Search widths of tables and layers of RUN, priced by the planner on your cluster.

    One network is trained that contains all candidates; the best ones are written as run files
    (docs/architecture-search.md). Trainings that the folder already holds are not repeated.

    \b
    recsmith search run.yaml --under 40% --price bytes --dry-run
    recsmith search run.yaml --under 40% --price bytes -o found
    recsmith search run.yaml --under 40% --price bytes --layers 0.5,1 --retrain 3 -o found
    """
    from recsmith.adapters.installed import require_torchrec
    from recsmith.files import dump_json, encode, write_text
    from recsmith.reports.searches import found_lines, found_to_raw, space_lines
    from recsmith.searching import SpaceOptions
    from recsmith.training.run import load_run, save_run
    from recsmith.training.systems.search.searching import NetworkSearch, prepare, search

    require_torchrec()
    made = load_run(run, settings)
    asked = {name: options[name] for name in ("under", "price", "coefficient", "cluster")}
    space = SpaceOptions(**{n: options[n] for n in ("widths", "rows", "tables", "layers", "skip")})
    prepared = prepare(made, NetworkSearch(**asked, options=space), output, **read_search(options))
    if options["dry_run"]:
        print_as(format_, lambda: space_lines(prepared.space), lambda: encode(prepared.space))
        return
    from recsmith.training.job.log import progress_text

    found = search(prepared, on_progress=lambda message: say(progress_text(message)))
    for each in found.samples:
        save_run(load_run(made, (*each.settings, f"output={made.output}-{each.name}")), f"{output}/{each.name}.json")
    write_text(str(Path(output) / "found.json"), dump_json(found_to_raw(found)))
    print_as(format_, lambda: found_lines(found), lambda: found_to_raw(found))
    end_line()
    note(f"wrote {output}/found.json and {', '.join(f'{each.name}.json' for each in found.samples)}")
    if options["retrain"]:
        _retrain(prepared, found, output, options["retrain"], format_)


def _retrain(prepared: Any, found: Any, output: str, seeds: int, format_: str) -> None:
    from recsmith.files import dump_json, encode, write_text
    from recsmith.reports.searches import point_lines, points_picture, search_page
    from recsmith.training.systems.search.points import points, trained

    rows, _ = trained(points(prepared, found, note), prepared, output, seeds, say)
    if format_ == "table":
        show_report(point_lines(rows))
        end_line()
    write_text(str(Path(output) / "points.json"), dump_json({"points": [encode(row) for row in rows]}))
    write_text(str(Path(output) / "search.svg"), points_picture(found.space, rows))
    write_text(str(Path(output) / "search.html"), search_page(found, rows))
    note(f"wrote {output}/search.html, search.svg and points.json")
