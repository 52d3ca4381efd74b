"""`recsmith serve`."""

import click

from recsmith.cli.progress import note, say

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(name="serve")
@click.argument("files", nargs=-1)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, metavar="N",
              help="Port to listen on; 0 takes a free one.")  # fmt: skip
@click.option("--allow-network", is_flag=True, default=False,
              help="Let --host be an address that other machines reach.")  # fmt: skip
@click.option("--open/--no-open", "open_browser", default=True, help="Open the page in a browser (default: yes).")
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Samples per device and step of CSV FILES.")
def command(
    files: tuple[str, ...], host: str, port: int, allow_network: bool, open_browser: bool, batch_size: int | None
) -> None:
    """Plan in a browser: a page on this machine, and its JSON API, until Ctrl-C.

    FILES are workloads, clusters, plans and constraints that the page shows from the start. The address that is
    printed holds a secret token; nobody without it can use the page, and nothing leaves this machine.

    \b
    recsmith serve
    recsmith serve tables.json plan.json
    recsmith serve --port 8000 --no-open
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith._install import WEB
    from recsmith.errors import MissingExtra, UsageError

    if host not in LOOPBACK and not allow_network:
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
    serve(files, host=host, port=port, batch_size=batch_size, on_address=_say, open_browser=open_browser)


def _say(address: str) -> None:
    click.echo(address)
    say("open this address in a browser; Ctrl-C ends the server")
