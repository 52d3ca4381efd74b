"""Trains a model of all-to-alls on folders of exchanges and writes it: read, split, train, judge, write."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural.files import Range
from recsmith.costs.neural_comm_files import CommCard, CommHeldOut, comm_model_of, load_comm_model, save_comm_model
from recsmith.errors import UsageError
from recsmith.learning.comm.baselines import WaitedAlphaBeta
from recsmith.learning.comm.data import Exchanges, comm_noise, digest, read_exchanges, split_blocks
from recsmith.learning.preparation import check_output, import_training
from recsmith.learning.splits import noise_floor_of

Predict = Callable[[Exchanges], Floats]


def learn_comm(
    folders: Sequence[Path], output: str, words: dict[str, Any], unseen: Sequence[Path] = (),
    on_epoch: Callable[[Any], None] | None = None,
) -> CommCard:  # fmt: skip
    """Train a model on the exchanges of folders and write it; words: the fields of comm/training.CommRecipe.

    unseen: folders of other numbers of ranks, which only judge the model. Ctrl-C ends training as a budget would;
    before the first epoch is done, nothing is written.

    Raises:
        UsageError: too few exchanges, or of several devices; the output is no path of a .safetensors file.
        MissingExtra: PyTorch is missing, or pyarrow where there are parquet parts.
        RecSmithError: training diverged, or the output cannot be written; a file that was there is unchanged.
    """
    check_output(output)
    blocks, left_out, origin, versions = read_exchanges(folders)
    judging = _unseen(blocks, folders, unseen)
    training = import_training("recsmith.learning.comm.training")
    recipe = training.CommRecipe(**words)
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
    """Blocks that only judge; UsageError where training sees as many ranks, or they are of another device."""
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
    """The least and the most that training saw of bytes and of the latest start."""
    size = np.concatenate([np.maximum(block.load.sent, block.load.received).ravel() for block in blocks])
    latest = np.concatenate([block.load.wait_s.max(axis=1) for block in blocks])
    inputs = {"bytes": size, "latest start": latest}
    return {name: Range(least=float(values.min()), most=float(values.max())) for name, values in inputs.items()}
