"""How far formulas of HSTU's layers are from what others published of GPUs (docs/sequences.md).

python benchmarks/hstu_formulas.py
"""

from recsmith.clusters import load_cluster
from recsmith.prediction.formulas import MATRIX_FLOPS, history_parts
from recsmith.prediction.histories import HistoryWork

WIDTH, HEADS, EACH = 512, 4, 128  # columns of a position, heads, columns of a head in keys and in values
# (what, device, samples, positions of a sample, pairs that attention multiplies, layers, measured s, with backward)
POINTS = (
    # meta-recsys/generative-recommenders issue 530: 32 samples, 1,024 events and 2,048 candidates, which see the events
    ("5 layers, forward", "h100", 32, 99e3 / 32, 1024**2 / 2 + 2048 * 1024, 5, 9.30e-3, False),
    # mlcommons/training pull request 903: 1,024 samples, 2.727 million positions; lengths are taken for equal
    ("1 layer, forward and backward", "mi350x", 1024, 2.727e6 / 1024, (2.727e6 / 1024) ** 2 / 2, 1, 160.31e-3, True),
)


def main() -> None:
    """The table of the page."""
    print("| what | device | by formulas | published | formulas / published |\n|---|---|---|---|---|")
    for what, name, samples, positions, pairs, blocks, measured, whole in POINTS:
        wide = HEADS * EACH
        products = ((positions, 4 * wide, WIDTH), (positions, WIDTH, wide)) * blocks
        work = HistoryWork(
            products=products, blocks=blocks, heads=HEADS, keys=EACH, values=EACH, positions=positions, pairs=2 * pairs,
            width=WIDTH,
        )  # fmt: skip
        device = load_cluster(f"{name}:8").device
        parts = [each for each in history_parts(work, samples, MATRIX_FLOPS[name], device) if "copies" not in each.term]
        found = sum(each.forward_s + (each.backward_s if whole else 0.0) for each in parts)
        print(f"| {what} | {name} | {found * 1e3:.1f} ms | {measured * 1e3:.1f} ms | {found / measured:.2f} |")


if __name__ == "__main__":
    main()
