"""Runs trained one after another on the ranks of one job; what came of each, or what refused it."""

import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist

from recsmith.errors import RecSmithError


def train_all(runs: list[Any]) -> list[Any]:
    """What `train_on_rank` returned for each run, or its error in words; a list copies a folder between runs."""
    from recsmith.training.rank import train_on_rank

    said: list[Any] = []
    for run in runs:
        try:
            said.append(_copied(*run) if isinstance(run, list) else train_on_rank(run))
        except RecSmithError as error:
            said.append(str(error))
    return said


def _copied(source: str, target: str, kept: int = 1, ahead: str = "", more: int = 0) -> None:
    """The state that a folder had after its first checkpoints, with some more of the member that is ahead."""
    if dist.get_rank() == 0:
        shutil.copytree(source, target)
        for folder in [Path(target), *(each for each in Path(target).iterdir() if each.is_dir())]:
            for checkpoint in sorted(folder.glob("checkpoints/step-*"))[kept + more * (folder.name == ahead) :]:
                shutil.rmtree(checkpoint)
    dist.barrier()
