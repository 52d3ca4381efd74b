"""Trains a model of all-to-alls on folders of exchanges and writes it: read, split, train, judge, write.

It is compared with the baseline that it must beat: alpha + most bytes / bandwidth + wait for the last rank.

Legend: N exchanges, W ranks.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural.files import Range
from recsmith.costs.neural_comm_files import CommCard, CommHeldOut, comm_model_of, load_comm_model, save_comm_model
from recsmith.errors import UsageError
from recsmith.learning.comm import Exchanges, comm_noise, digest, read_exchanges, split_blocks
from recsmith.learning.preparation import check_output, import_training, noise_floor_of, non_negative_fit

Predict = Callable[[Exchanges], Floats]


def learn_comm(
    folders: Sequence[Path], output: str, fields: dict[str, Any], unseen: Sequence[Path] = (),
    on_epoch: Callable[[Any], None] | None = None,
) -> CommCard:  # fmt: skip
    """Train a model on the exchanges of folders and write it; fields: of comm/training.CommRecipe.

    unseen: folders of other numbers of ranks, which only judge the model. Ctrl-C ends training as a budget does; before
    the first epoch is done, nothing is written.

    Raises:
        UsageError: there are too few exchanges, or they are of several devices; the output is no path of a .safetensors
            file; a number of ranks is both to train and to judge.
        MissingExtra: PyTorch is missing, or pyarrow if there are parquet parts.
        RecSmithError: training diverged, or the output cannot be written; an existing file is unchanged.
    """
    check_output(output)
    blocks, left_out, origin, versions = read_exchanges(folders)
    judging = _unseen(blocks, folders, unseen)
    training = import_training("recsmith.learning.comm.training")
    recipe = training.CommRecipe(**fields)
    learning, choosing, judged = split_blocks(blocks, recipe.seed)
    network, epochs = training.train_comm(recipe, learning, choosing, on_epoch)
    tensors = network.tensors()
    model = comm_model_of(tensors, origin.per_host, output)
    simple = WaitedAlphaBeta(learning)
    seen = tuple(block.ranks for block in blocks)
    card = CommCard(
        hardware=origin.hardware, backend=origin.backend, device=origin.device, versions=versions,
        per_host=origin.per_host, ranks=seen, seed=recipe.seed, data=digest(blocks), exchanges=sum(map(len, blocks)),
        left_out=left_out, train=sum(map(len, learning)), validation=sum(map(len, choosing)), epochs=epochs,
        held_out=tuple(
            comm_held_out(block, lambda one: model.of_load(one.load), simple.predict, seen)
            for block in sorted([*judged, *judging], key=lambda one: one.ranks) if len(block)
        ),
        noise=noise_floor_of(comm_noise(blocks)), ranges=comm_ranges(learning),
    )  # fmt: skip
    save_comm_model(output, tensors, card)
    load_comm_model(output)
    return card


def _unseen(blocks: Sequence[Exchanges], folders: Sequence[Path], unseen: Sequence[Path]) -> list[Exchanges]:
    """Blocks that only judge; UsageError if a number of ranks is in training, too, or they are of another device."""
    if not unseen:
        return []
    known = {block.ranks for block in blocks}
    both, *_ = read_exchanges([*folders, *unseen])
    others, *_ = read_exchanges(unseen)
    twice = sorted(known & {block.ranks for block in others})
    if twice:
        raise UsageError(f"exchanges of {twice[0]} ranks are to train and to judge; give each number of ranks once")
    return [block for block in both if block.ranks not in known]


def comm_held_out(block: Exchanges, model: Predict, simple: Predict, trained: Sequence[int]) -> CommHeldOut:
    """Scores of a block's exchanges: errors of the model and of the alpha-beta baseline. trained: numbers of ranks."""
    off, other = (np.abs(each(block) / block.seconds - 1) for each in (model, simple))
    return CommHeldOut(
        ranks=block.ranks, trained=block.ranks in trained, exchanges=len(block), median=float(np.median(off)),
        mean=float(off.mean()), alpha_beta_median=float(np.median(other)), alpha_beta_mean=float(other.mean()),
    )  # fmt: skip


def comm_ranges(blocks: Sequence[Exchanges]) -> dict[str, Range]:
    """The least and the most of bytes and of the latest start in the training data."""
    size = np.concatenate([np.maximum(block.load.sent, block.load.received).ravel() for block in blocks])
    latest = np.concatenate([block.load.wait_s.max(axis=1) for block in blocks])
    inputs = {"bytes": size, "latest start": latest}
    return {name: Range(least=float(values.min()), most=float(values.max())) for name, values in inputs.items()}


class WaitedAlphaBeta:
    """Alpha-beta of each number of ranks, fitted to exchanges that all ranks start at once; then the wait is added.

    A number of ranks without such exchanges uses the fit of the nearest number (by ratio) that has some.
    """

    def __init__(self, blocks: Sequence[Exchanges]) -> None:
        self._fits = {block.ranks: _fit(block.take(block.simultaneous)) for block in blocks if block.simultaneous.any()}

    def predict(self, block: Exchanges) -> Floats:
        """Seconds (N, W)."""
        nearest = min(self._fits, key=lambda ranks: abs(np.log(ranks / block.ranks)))
        alpha, per_byte = self._fits[nearest]
        return block.load.wait_s + alpha + per_byte * _most(block)


def _most(block: Exchanges) -> Floats:
    """The most bytes that a rank sends or receives (N, 1)."""
    return np.maximum(block.load.sent, block.load.received).max(axis=1, keepdims=True)


def _fit(block: Exchanges) -> tuple[float, float]:
    """(alpha, seconds per byte) of 0 or more, by least relative squares over exchanges and ranks."""
    size = np.broadcast_to(_most(block), block.seconds.shape).ravel()
    seconds = block.seconds.ravel()
    figures = np.stack([np.full(len(size), seconds.min()), seconds.max() * size / size.max()], axis=1)
    alpha, slope = non_negative_fit(figures / seconds[:, None], np.ones(len(size)))
    return float(alpha * seconds.min()), float(slope * seconds.max() / size.max())
