"""RecSmith's HSTU beside the authors' own: the same weights, the same histories, what both say of them.

    git clone https://github.com/facebookresearch/generative-recommenders; git checkout 2e81fab
    python benchmarks/hstu_reference.py --reference generative-recommenders
    python benchmarks/hstu_reference.py --reference generative-recommenders -o tests/training/models/hstu_reference.json

Needs their research code on the path, run by its PyTorch code on CPU; nothing of it is copied. `-o` writes the inputs'
seed and the outputs of one small case, which the tests compare with. Then both train on the same batches, by the same
loss, with the optimizers of both kinds of weights that the public configurations name, and losses stand side by side.

B samples, N positions, D columns
"""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from recsmith.training.models.hstu import HSTUBody
from recsmith.training.models.settings import HSTUSettings

ITEMS, SEED, SAMPLES = 50, 7, 12
SHAPES = {  # name: columns, layers, heads, columns of a head, longest history
    "small": (8, 2, 2, 4, 6),
    "one head": (16, 1, 1, 16, 12),
    "as ml-1m": (50, 2, 1, 50, 40),
}
TRAINED, STEPS, BATCH, RATE = "as ml-1m", 200, 32, 1e-3


def histories(count: int, longest: int, seed: int) -> dict[str, np.ndarray]:
    """Items, times and lengths (B, N), padded by 0 behind; times of targets (B,), and the items that came then (B,)."""
    drawn = np.random.default_rng(seed)
    lengths = drawn.integers(1, longest + 1, count)
    items = drawn.integers(1, ITEMS, (count, longest))
    times = 10**9 + np.cumsum(np.exp(drawn.uniform(0, 14, (count, longest))).astype(np.int64), axis=1)
    there = np.arange(longest) < lengths[:, None]
    last = times[np.arange(count), lengths - 1]
    return {
        "lengths": lengths, "items": items * there, "times": times * there,
        "asked": last + drawn.integers(1, 10**6, count), "next": drawn.integers(1, ITEMS, count),
    }  # fmt: skip


def settings_of(shape: tuple[int, int, int, int, int]) -> HSTUSettings:
    _, layers, heads, each, longest = shape
    return HSTUSettings(
        times="times", target_time="asked", score="dot", longest=longest, blocks=layers, heads=heads,
        attention_dim=each, linear_dim=each, dropout=0.0,
    )  # fmt: skip


def seeded(shape: tuple[int, int, int, int, int], seed: int) -> tuple[HSTUBody, torch.nn.Embedding]:
    """RecSmith's model and a table of items, of larger weights than at a start, so that every part counts."""
    torch.manual_seed(seed)
    body, table = HSTUBody(settings_of(shape), shape[0], 1), torch.nn.Embedding(ITEMS, shape[0])
    with torch.no_grad():
        for parameter in [*body.parameters(), *table.parameters()]:
            parameter.copy_(torch.rand(parameter.shape) - 0.5)
    return body.eval(), table


def ours(body: HSTUBody, table: torch.nn.Embedding, batch: dict[str, np.ndarray]) -> torch.Tensor:
    """The vectors of users (B, D), in length 1."""
    lengths, there = torch.from_numpy(batch["lengths"]), torch.from_numpy(batch["items"] > 0)
    vectors = table(torch.from_numpy(batch["items"])[there])
    rows = {"history": SimpleNamespace(values=lambda: vectors, lengths=lambda: lengths)}
    ones = torch.ones(len(lengths), dtype=torch.long)
    numbers = {
        "times": (torch.from_numpy(batch["times"])[there], lengths), "asked": (torch.from_numpy(batch["asked"]), ones)
    }  # fmt: skip
    return body.outputs(rows, numbers, None)


class Reference:
    """Their model with our weights."""

    def __init__(self, shape: tuple[int, int, int, int, int], body: Any, table: torch.nn.Embedding) -> None:
        def theirs(module: str, name: str) -> Any:
            return getattr(import_module(f"generative_recommenders.research.{module}"), name)

        sequential = "modeling.sequential"
        tables = theirs(f"{sequential}.embedding_modules", "LocalEmbeddingModule")
        hstu = theirs(f"{sequential}.hstu", "HSTU")
        places = theirs(
            f"{sequential}.input_features_preprocessors", "LearnablePositionalEmbeddingInputFeaturesPreprocessor"
        )
        norm = theirs(f"{sequential}.output_postprocessors", "L2NormEmbeddingPostprocessor")
        product = theirs("rails.similarities.dot_product_similarity_fn", "DotProductSimilarity")
        width, layers, heads, each, longest = shape
        self.positions = longest + 1
        self.model: Any = hstu(
            max_sequence_len=longest, max_output_len=1, embedding_dim=width, num_blocks=layers, num_heads=heads,
            linear_dim=each, attention_dim=each, normalization="rel_bias", linear_config="uvqk",
            linear_activation="silu", linear_dropout_rate=0.0, attn_dropout_rate=0.0,
            embedding_module=tables(ITEMS - 1, width), similarity_module=product(),
            input_features_preproc_module=places(
                self.positions, width, 0.0),
            output_postproc_module=norm(width, eps=1e-6), verbose=False,
        )  # fmt: skip
        with torch.no_grad():
            self.model._embedding_module._item_emb.weight.copy_(table.weight)
            self.model._input_features_preproc._pos_emb.weight.copy_(body.place)
            for layer, block in zip(self.model._hstu._attention_layers, body.blocks, strict=True):
                layer._uvqk.copy_(block.uvqk)
                layer._o.weight.copy_(block.out.weight)
                layer._o.bias.copy_(block.out.bias)
                layer._rel_attn_bias._ts_w.copy_(block.by_time)
                layer._rel_attn_bias._pos_w.zero_()[: self.positions].copy_(block.by_place.flip(0))

    def __call__(self, batch: dict[str, np.ndarray]) -> torch.Tensor:
        """The vectors of users (B, D), in length 1."""
        lengths = torch.from_numpy(batch["lengths"])
        pad = [(0, 0), (0, 1)]
        items, times = (torch.from_numpy(np.pad(batch[name], pad)) for name in ("items", "times"))
        times.scatter_(1, lengths[:, None], torch.from_numpy(batch["asked"])[:, None])
        vectors = self.model._embedding_module.get_item_embeddings(items)
        encoded = self.model(lengths, items, vectors, {"timestamps": times})
        return encoded[torch.arange(len(lengths)), lengths - 1]

    def groups(self) -> tuple[list[Any], list[Any]]:
        """Weights of the table, and all others."""
        table = self.model._embedding_module._item_emb.weight
        return [table], [each for each in self.model.parameters() if each is not table]


def optimizers(tables: list[Any], layers: list[Any]) -> list[Any]:
    """Row-wise Adagrad of tables and Adam of layers, as the public configurations name them."""
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    return [RowWiseAdagrad(tables, lr=RATE, eps=1e-8), torch.optim.Adam(layers, lr=RATE, betas=(0.95, 0.999), eps=1e-8)]


def losses(encode: Any, table: Any, steps: list[Any]) -> list[float]:
    """Of training by full softmax over all items."""
    found: list[float] = []
    for number in range(STEPS):
        batch = histories(BATCH, SHAPES[TRAINED][-1], SEED + 1 + number)
        logits = encode(batch) @ table.T * 20
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch["next"]))
        for each in steps:
            each.zero_grad()
        loss.backward()
        for each in steps:
            each.step()
        found.append(loss.item())
    return found


def golden(shape: tuple[int, int, int, int, int], outputs: torch.Tensor) -> str:
    """A case and its outputs as JSON, a sample a line."""
    rows = ",\n  ".join(json.dumps([round(each, 7) for each in row]) for row in outputs.tolist())
    case = f'"seed": {SEED}, "samples": {SAMPLES}, "shape": {json.dumps(shape)}'
    return f'{{\n {case},\n "outputs": [\n  {rows}\n ]\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", required=True, help="a checkout of facebookresearch/generative-recommenders")
    parser.add_argument("-o", "--output", help="write the figures of the first case as JSON")
    parser.add_argument("--outputs-only", action="store_true", help="train nothing")
    given = parser.parse_args()
    sys.path.insert(0, given.reference)
    print("| case | largest difference of outputs |\n|---|---|")
    for name, shape in SHAPES.items():
        body, table = seeded(shape, SEED)
        batch = histories(SAMPLES, shape[-1], SEED)
        with torch.no_grad():
            theirs, mine = Reference(shape, body, table)(batch), ours(body, table, batch)
        assert bool(torch.isfinite(theirs).all())
        print(f"| {name} | {(theirs - mine).abs().max().item():.1e} |")
        if given.output and name == "small":
            Path(given.output).write_text(golden(shape, theirs), "utf-8")
    if given.outputs_only:
        return
    shape = SHAPES[TRAINED]
    body, table = seeded(shape, SEED)
    reference = Reference(shape, body, table)
    tables, layers = reference.groups()
    theirs = losses(reference, tables[0], optimizers(tables, layers))
    own = [each for each in body.parameters() if each.requires_grad]
    mine = losses(lambda batch: ours(body, table, batch), table.weight, optimizers([table.weight], own))
    worst = max(abs(a - b) / abs(a) for a, b in zip(theirs, mine, strict=True))
    print(f"\n{STEPS} steps: losses {theirs[0]:.5f} to {theirs[-1]:.5f}, at most {worst:.1e} apart (relative)")


if __name__ == "__main__":
    main()
