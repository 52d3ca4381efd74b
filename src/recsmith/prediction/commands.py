"""Runs a command whose Python processes capture themselves (`recsmith capture`): no line of the command changes.

Each Python process finds `injected/sitecustomize.py` first on its path, which waits for PyTorch's optimizers; the
process that steps one captures itself. A sitecustomize of the environment's own still runs.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from recsmith.errors import RecSmithError, UsageError
from recsmith.files import dump_json
from recsmith.prediction.capture_files import CaptureSettings, about_name, graph_name, trace_name

WORD = "RECSMITH_CAPTURE"  # environment: the folder and the settings of a capture, as JSON


def capture_command(folder: Path, command: Sequence[str], settings: CaptureSettings, *, force: bool = False) -> int:
    """Run a command to its end and capture its steps into a folder; how many ranks wrote theirs.

    Raises:
        UsageError: the folder holds something, or the command cannot be started.
        RecSmithError: the command failed, or ended before all steps were captured.
    """
    _prepare(folder, force)
    told = dump_json({"folder": str(folder.resolve()), **asdict(settings)})
    places = [str(Path(__file__).parent / "injected"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, WORD: told, "PYTHONPATH": os.pathsep.join(places)}
    try:
        ended = subprocess.run(list(command), env=environment, check=False).returncode
    except OSError as error:
        raise UsageError(f"cannot start '{command[0]}': {error.strerror}; give a command after --") from None
    written = len(list(folder.glob(about_name(0).replace("0", "*"))))
    if ended:
        raise RecSmithError(f"'{command[0]}' ended with code {ended}; {written} ranks had captured their steps by then")
    if not written:
        raise RecSmithError(
            f"'{command[0]}' ended before {settings.needed} steps of a torch.optim optimizer, so nothing was captured; "
            "train longer, ask for fewer --steps, or use recsmith.capture in your loop"
        )
    return written


def _prepare(folder: Path, force: bool) -> None:
    """Make the folder; an earlier capture in it is removed where forced, and nothing else ever is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write '{folder}': {error.strerror}; choose a folder you may write to") from None
    mine = [each for name in (about_name, graph_name, trace_name) for each in folder.glob(name(0).replace("0", "*"))]
    strange = [each for each in folder.iterdir() if each not in mine]
    if strange or (mine and not force):
        found = (strange or mine)[0].name
        hint = "give a new or an empty folder" if strange else "give a new folder, or --force to replace it"
        raise UsageError(f"'{folder}' holds '{found}'; {hint}")
    for each in mine:
        each.unlink()
