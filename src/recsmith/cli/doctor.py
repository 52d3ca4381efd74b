"""`recsmith doctor`."""

import click


@click.command(name="doctor")
def command() -> None:
    """Check the installation: versions, and whether PyTorch, FBGEMM and TorchRec belong together.

    Planning needs none of the three; exit code 2 says that what runs in TorchRec would fail.
    """
    import sys

    from recsmith import __version__
    from recsmith.adapters.doctor import TRIO, installed, require_torch

    click.echo(f"recsmith    {__version__}, Python {sys.version.split()[0]}: planning works")
    for module, number in installed().items():
        click.echo(f"{module:<11} {number or 'not installed'} (wanted: {TRIO[module]})")
    require_torch()
    click.echo("the trio belongs together: recsmith.torchrec and verify --torchrec work")
