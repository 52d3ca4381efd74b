"""Commands whose result is viewed in a browser: `recsmith serve` and `recsmith report`."""

from typing import Any

import click

from recsmith.cli.live import live
from recsmith.cli.options import count_option, force_option, inputs_of
from recsmith.cli.printing import heard_switches, note, say

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(name="serve")
@click.argument("files", nargs=-1, metavar="[FOLDER] [FILES]...")
@click.option("--memory", is_flag=True, default=False, help="Keep plans in memory, each browser's own, until the end.")
@click.option("--read-only", is_flag=True, default=False, help="Show plans and runs, and let nobody change anything.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@count_option("--port", default=0, least=0, most=65535, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--allow-network", is_flag=True, default=False, help="Let --host be an address that other machines reach."
)
@click.option("--open/--no-open", "open_browser", default=True, help="Open the page in a browser (default: yes).")
@count_option("--batch-size", help="Samples per device and step of CSV FILES.")
def serve_command(files: tuple[str, ...], memory: bool, read_only: bool, host: str, port: int, **options: Any) -> None:
    """Plan in a browser: a page on this machine, and its JSON API, until Ctrl-C.

    FOLDER is where plans are kept, a file each, as every other command reads them (default: a folder of yours, which is
    printed); write a '/' at its end if it does not exist yet. The folder of a training run is shown while it trains,
    and never written to. FILES are workloads, clusters, plans, constraints, logs, sweeps and online.json of `recsmith
    bench online`, which the page shows from the start. The address that is printed holds a secret token; nobody
    without it can use the page, and nothing leaves this machine. The second address shows the same page but allows no
    changes.

    \b
    recsmith serve
    recsmith serve plans/
    recsmith serve plans/ tables.json plan.json
    recsmith serve runs/monday
    recsmith serve plans/ --read-only
    recsmith serve --memory
    recsmith serve --port 8000 --no-open
    """
    from recsmith._install import WEB
    from recsmith.errors import MissingExtra, UsageError

    if host not in LOOPBACK and not options["allow_network"]:
        raise UsageError(
            f"--host {host} can be reached from other machines, and the token would cross the network unencrypted; "
            "use an SSH tunnel to 127.0.0.1, or add --allow-network"
        )
    try:
        from recsmith.web.serving.run import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise MissingExtra(f"`recsmith serve` needs Starlette and uvicorn: {WEB}") from None
    if host not in LOOPBACK:
        note(f"other machines can reach this page at {host}; its token crosses the network unencrypted")
    folder, runs, others = _folder_of(files, memory=memory)

    def tell(address: str, shows: str) -> None:
        click.echo(address)
        say("open this address in a browser; Ctrl-C ends the server")
        if address == shows:
            say("who has this address sees all and changes nothing")
        elif folder is not None:
            say(f"to show it to others, who can change nothing: {shows}")
        say("plans are kept in memory, until then" if folder is None else f"plans are kept in {folder}")

    serve(
        others,
        folder=folder,
        runs=runs,
        only_reads=read_only,
        host=host,
        port=port,
        batch_size=options["batch_size"],
        on_address=tell,
        on_lost=note,
        open_browser=options["open_browser"],
    )


def _folder_of(arguments: tuple[str, ...], *, memory: bool) -> tuple[str | None, list[str], list[str]]:
    """(folder of plans, or None with --memory; folders of runs; files), from the arguments of `recsmith serve`."""
    from pathlib import Path

    from recsmith.errors import UsageError
    from recsmith.web.serving.folder_files import default_folder
    from recsmith.web.serving.run_folders import is_run

    runs = [each for each in arguments if is_run(Path(each))]
    folders = [each for each in arguments if each not in runs and (each.endswith("/") or Path(each).is_dir())]
    for each in arguments:
        if each not in folders and each != "-" and not Path(each).suffix and not Path(each).exists():
            raise UsageError(f"'{each}' is not there; to keep plans in a new folder of this name, write '{each}/'")
    if len(folders) > 1 or (folders and memory):
        wrong = f"{len(folders)} folders" if len(folders) > 1 else f"'{folders[0]}' and --memory"
        raise UsageError(f"plans are kept in one place, and {wrong} were given; name one folder, or --memory alone")
    files = [each for each in arguments if each not in folders and each not in runs]
    return (None if memory else folders[0] if folders else str(default_folder())), runs, files


@click.command(name="report")
@click.argument("plan")
@click.option("--against", metavar="OTHER", help="Another plan for the same tables; shows what changed from it.")
@click.option("--advice", is_flag=True, help="Also say which changes pay, as `recsmith advise` does.")
@click.option(
    "--capacity",
    metavar="FILE",
    help="Output of `recsmith data capacity --format json`, to show it.",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write ('-' for stdout).")
@force_option
def report_command(
    plan: str, against: str | None, advice: bool, capacity: str | None, output: str, force: bool
) -> None:
    """Write a page with charts of PLAN (a file, '-' for stdin): one HTML file that opens without a network.

    It shows the cost of a step and how far that is from the best, where each device spends its time and its memory,
    where every shard is placed, what limits the step, and what the bound covers.

    \b
    recsmith report plan.json -o plan.html
    recsmith report plan.json --against running.json -o plan.html
    recsmith report plan.json --advice -o plan.html
    recsmith report plan.json --capacity rows.json -o plan.html
    """
    from recsmith.errors import UsageError
    from recsmith.files import check_target, write_text
    from recsmith.web.report import REPORT_FILE, report_html

    if plan == "-" and against == "-":
        raise UsageError("PLAN and --against are both '-', and stdin holds one plan; give one of them as a file")
    check_target(output, inputs=inputs_of(plan, against, capacity), kind=REPORT_FILE, force=force)
    with live("pricing what pays" if advice else "reading the plan"):
        page = report_html(plan, against=against, advice=advice, capacity=capacity, on_switch=heard_switches())
    if output == "-":
        click.echo(page, nl=False)
    else:
        write_text(output, page)
        note(f"written to {output}; open it in a browser")
