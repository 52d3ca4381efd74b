"""`recsmith devices`."""

import click

from recsmith.cli.options import format_option


@click.command(name="devices")
@format_option
def command(format_: str) -> None:
    """List the devices of the catalogue: memory, speeds, links, and how many a host holds.

    `--format json` prints all figures, in bytes and bytes a second, with the sources of each.

    \b
    recsmith devices
    recsmith devices --format json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.files import dump_json
    from recsmith.reports.devices import devices_report, devices_to_raw
    from recsmith.reports.layout import show

    if format_ == "json":
        click.echo(dump_json(devices_to_raw()), nl=False)
    else:
        show(devices_report())
