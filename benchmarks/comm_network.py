"""The learned model of all-to-alls beside what it must beat, on unseen exchanges: the tables of docs/learning.md.

    python benchmarks/comm_network.py --data sim-2,sim-8,sim-16 --unseen sim-6,sim-32 --fixed 8
    python benchmarks/comm_network.py --data shipped:comm-2 --model comm-cpu

median, mean: |predicted / measured - 1| of every rank. together, apart: means over exchanges whose ranks start at once,
and over others. beyond the wait: |predicted - measured| over what a rank takes from the last start on, mean of `apart`;
in the other columns the wait, which every model here is told, hides errors.

--model: of these exchanges, by name or file; without it one is trained first. --fixed W: models of W ranks alone, from
the exchanges of W ranks: NeuroShard's networks (a fixed number of devices in a fixed order, one network a direction,
128-64-32-16-W units, squares of milliseconds), the same with logarithms in and out and our loss, ours with one network
of all ranks in their order in place of the equivariant ones, and ours.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, smooth_l1_loss

from recsmith._types import Floats
from recsmith.costs.neural_comm import INPUTS, WORK
from recsmith.costs.neural_comm_files import comm_model_of, load_comm_model
from recsmith.learning.comm import Exchanges, comm_noise, digest, read_exchanges, split_blocks
from recsmith.learning.comm.learn import WaitedAlphaBeta
from recsmith.learning.comm.training import CommNetwork, CommRecipe, predict_comm, train_comm
from recsmith.learning.training_loop import LINEAR_FROM
from recsmith.measuring.about import locate

Predict = Callable[[Exchanges], Floats]
MS = 1e3
UNITS = (128, 64, 32, 16)
RATE, BATCH = 1e-3, 64
LONGER = 5  # times as many epochs as ours; the best of them by validation counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge learned models of all-to-alls on held-out exchanges.")
    parser.add_argument("--data", required=True, help="folders of all-to-alls, with commas between")
    parser.add_argument("--unseen", default="", help="folders of other numbers of ranks, only to judge by")
    parser.add_argument("--model", help="name or file of a model of these exchanges")
    parser.add_argument("--fixed", type=int, help="number of ranks of the models of one number of ranks")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    blocks, left_out, origin, _ = read_exchanges([locate(word) for word in options.data.split(",")])
    unseen = read_exchanges([locate(word) for word in options.unseen.split(",")])[0] if options.unseen else []
    print(f"{origin.hardware}, {origin.device}: {sum(map(len, blocks)):,} exchanges, {left_out} left out")
    apart = comm_noise(blocks)
    print(f"noise floor: {np.median(apart):.1%} median, {apart.mean():.1%} mean of {len(apart)} pairs\n")
    learning, choosing, judging = split_blocks(blocks, options.seed)
    recipe = CommRecipe(seed=options.seed, epochs=options.epochs)
    simple = WaitedAlphaBeta(learning).predict
    ours = shipped(options.model, blocks) if options.model else learned(recipe, learning, choosing, origin.per_host)
    print("| ranks | exchanges | model | median | mean | together | apart | beyond the wait |")
    print("|---|---|---|---|---|---|---|---|")
    for block in sorted([*judging, *unseen], key=lambda one: one.ranks):
        name = f"{block.ranks}{'' if block.ranks in [each.ranks for each in blocks] else ', unseen'}"
        print(row(name, "alpha-beta, wait", simple, block))
        print(row(name, "network", ours, block), flush=True)
    if options.fixed:
        one, chosen, judged = (
            next(block for block in part if block.ranks == options.fixed) for part in (learning, choosing, judging)
        )
        for relative, name in ((False, "NeuroShard's form"), (True, "NeuroShard's form, logarithms")):
            fixed = Fixed(one, chosen, relative, LONGER * options.epochs, options.seed)
            print(row(f"{options.fixed} alone", name, fixed.predict, judged), flush=True)
        network, _ = train_comm(recipe, [one], [chosen], make=lambda: Ordered(options.fixed))
        ordered: Predict = lambda block: predict_comm(network, block)  # noqa: E731
        print(row(f"{options.fixed} alone", "network of ranks in order", ordered, judged), flush=True)
        alone = learned(recipe, [one], [chosen], origin.per_host)
        print(row(f"{options.fixed} alone", "network", alone, judged))


def shipped(name: str, blocks: Sequence[Exchanges]) -> Predict:
    """A model that was trained on these exchanges, so that the parts of its split are known."""
    model, card = load_comm_model(name)
    assert card.data == digest(blocks), f"{name} was trained on other exchanges"
    return lambda block: model.of_load(block.load)


def learned(
    recipe: CommRecipe, learning: Sequence[Exchanges], choosing: Sequence[Exchanges], per_host: int | None
) -> Predict:
    begun = time.process_time()
    network, _ = train_comm(recipe, learning, choosing)
    model = comm_model_of(network.tensors(), per_host, "")
    print(
        f"trained on {[block.ranks for block in learning]} ranks in {time.process_time() - begun:.0f} s of CPU time\n"
    )
    return lambda block: model.of_load(block.load)


class Fixed:
    """NeuroShard's two networks: the bytes that differ between ranks, and starts, in the order of ranks.

    relative: logarithms of seconds by our loss, of logarithms; else squares of milliseconds.
    """

    def __init__(self, block: Exchanges, chosen: Exchanges, relative: bool, epochs: int, seed: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self._relative = relative
        told = self._told(block)
        self._centre, self._spread = told.mean(axis=0), told.std(axis=0) + 1e-9
        self._networks = [self._trained(block, chosen, way, epochs, seed) for way in (False, True)]

    def predict(self, block: Exchanges) -> Floats:
        """Seconds (N, W)."""
        found = np.zeros_like(block.seconds)
        for way, network in enumerate(self._networks):
            kept = block.load.forward == (way == 1)
            with torch.no_grad():
                found[kept] = self._seconds(network(self._inputs(block.take(kept)))).double().numpy()
        return found

    def _told(self, block: Exchanges) -> Floats:
        load = block.load
        size = np.where(load.forward[:, None], load.sent, load.received)
        skew = load.skew_s - load.skew_s.min(axis=1, keepdims=True)
        return np.hstack([np.log(size), np.log(skew + 1e-6)] if self._relative else [size, skew * MS])

    def _inputs(self, block: Exchanges) -> Tensor:
        return torch.as_tensor((self._told(block) - self._centre) / self._spread, dtype=torch.float32)

    def _seconds(self, out: Tensor) -> Tensor:
        return (out - 8).exp() if self._relative else out / MS

    def _loss(self, out: Tensor, seconds: Tensor) -> Tensor:
        if self._relative:
            return smooth_l1_loss(out - 8, seconds.log(), beta=LINEAR_FROM)
        return mse_loss(out, seconds * MS)

    def _trained(self, block: Exchanges, chosen: Exchanges, way: bool, epochs: int, seed: int) -> nn.Module:
        block, chosen = (each.take(each.load.forward == way) for each in (block, chosen))
        widths = (2 * block.ranks, *UNITS)
        layers = [each for pair in zip(widths, UNITS, strict=False) for each in (nn.Linear(*pair), nn.ReLU())]
        network = nn.Sequential(*layers, nn.Linear(UNITS[-1], block.ranks))
        optimizer, rng = torch.optim.Adam(network.parameters(), lr=RATE), np.random.default_rng(seed)
        inputs, seconds = self._inputs(block), torch.as_tensor(block.seconds, dtype=torch.float32)
        known = self._inputs(chosen), torch.as_tensor(chosen.seconds, dtype=torch.float32)
        best, kept = np.inf, network.state_dict()
        for _ in range(epochs):
            for some in np.array_split(rng.permutation(len(block)), max(1, len(block) // BATCH)):
                loss = self._loss(network(inputs[some]), seconds[some])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                error = float(self._loss(network(known[0]), known[1]))
            if error < best:
                best, kept = error, {name: value.clone() for name, value in network.state_dict().items()}
        network.load_state_dict(kept)
        return network


class Ordered(CommNetwork):
    """Ours, but for what it knows of symmetry: all inputs of W ranks, in their order, enter one network."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        sizes = (ranks * len(INPUTS), UNITS[0], UNITS[0])
        layers = [each for pair in pairwise(sizes) for each in (nn.Linear(*pair), nn.ReLU())]
        self.all = nn.Sequential(*layers, nn.Linear(UNITS[0], ranks * len(WORK)))

    def factors(self, hidden: Tensor) -> Tensor:
        """Logarithms of factors (N, W, k) of normalised inputs (N, W, x)."""
        return 0.3 * self.all(hidden.flatten(1)).view(*hidden.shape[:2], len(WORK))


def row(ranks: str, name: str, model: Predict, block: Exchanges) -> str:
    off = np.abs(model(block) - block.seconds)
    error, late = off / block.seconds, ~block.simultaneous
    beyond = (off / np.maximum(block.seconds - block.load.wait_s, 1e-9))[late].mean()
    return (
        f"| {ranks} | {len(block)} | {name} | {np.median(error):.1%} | {error.mean():.1%} | {error[~late].mean():.1%} "
        f"| {error[late].mean():.1%} | {beyond:.1%} |"
    )


if __name__ == "__main__":
    main()
