"""`recsmith bench online`."""

from pathlib import Path

import click

from recsmith.cli.options import count_option, format_option, split_commas
from recsmith.cli.printing import note, print_as, say


@click.command(name="online")
@click.argument("run")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Replace a value of the run, such as data.periods.samples=100000.")  # fmt: skip
@click.option("--arms", callback=split_commas, metavar="A,B",
              help="Updates, =K: of K periods (default: incremental,window=3,future_gradient=3).")  # fmt: skip
@count_option("--seeds", default=3, most=100,
              help="Of weights and order, from 0 on; each arm learns the stream from each.")  # fmt: skip
@count_option("--first", metavar="P", help="The first period that counts (default: when all arms differ).")
@click.option("-o", "--output", default="bench/online", show_default=True, metavar="FOLDER", help="Folder to go on in.")
@format_option
def online_command(
    run: str, settings: tuple[str, ...], arms: tuple[str, ...] | None, seeds: int, first: int | None, output: str,
    format_: str,
) -> None:  # fmt: skip
    """Replay the stream of RUN, a run file with data.periods, and report which update learns it best (docs/online.md).

    Each arm learns the same periods from the same seeds; each period is scored before the model is trained on it.
    Results that the folder holds already are not trained again. online.json and online.svg are written into it.

    \b
    recsmith bench online run.yaml -o bench/stream
    recsmith bench online run.yaml --arms incremental,window=7 --seeds 5 --first 10
    """
    from recsmith.files import dump_json, write_text
    from recsmith.reports.online import online_lines, online_picture, online_to_raw
    from recsmith.training.systems.periods.arms import read_arms
    from recsmith.training.systems.periods.replay import bench_online

    found = bench_online(
        run, output, settings=settings, arms=read_arms(arms), seeds=range(seeds), first=first, on_progress=say
    )
    write_text(str(Path(output) / "online.json"), dump_json(online_to_raw(found)))
    write_text(str(Path(output) / "online.svg"), online_picture(found))
    print_as(format_, lambda: online_lines(found), lambda: online_to_raw(found))
    note(f"wrote {output}/online.json and {output}/online.svg")
