"""`recsmith doctor`."""

import click


@click.command(name="doctor")
def command() -> None:
    """Check the installation: versions, and whether PyTorch, FBGEMM and TorchRec belong together.

    Planning needs none of the three; exit code 2 says that what runs in TorchRec would fail.
    """
    from recsmith.adapters.installed import require_torchrec, tried, trio_versions
    from recsmith.reports.installation import installation_lines
    from recsmith.reports.layout import show_lines

    found = trio_versions()
    show_lines(installation_lines(found))
    require_torchrec()
    click.echo(f"the trio belongs together: recsmith.torchrec and verify --torchrec work; {tried(found)}")
