"""The table of `recsmith bench train`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recsmith.units import format_size

if TYPE_CHECKING:
    from recsmith.training.variants import VariantRow


def variant_lines(rows: Sequence["VariantRow"]) -> list[str]:
    """A line for each variant: speed, parts of a step, bytes, memory, and scores with 95 % intervals over seeds.

    Beside the speed stands its ratio to the first variant's, seed by seed: the median, and the least and the most.
    """
    width = max(len(row.name) for row in rows)
    speed = f"{'samples/s':>10} {'beside first':>18}"
    words = f"{'data':>8} {'forward':>9} {'backward':>9} {'sent/step':>10} {'memory':>10}"
    head = f"{'':{width}}  {speed} {words}  AUC, NE"
    return [head, *(_line(row, width) for row in rows)]


def _line(row: "VariantRow", width: int) -> str:
    parts = (row.data_s, row.forward_s, row.backward_s)
    times = " ".join(f"{seconds * 1e3:{size}.2f}ms" for seconds, size in zip(parts, (6, 7, 7), strict=True))
    return (
        f"{row.name:{width}}  {row.samples_per_s:10,.0f} {_faster(row.faster):>18} {times} "
        f"{format_size(row.sent_bytes):>10} {format_size(row.peak_bytes):>10}  "
        f"{_within(row.auc, row.auc_within)}, {_within(row.ne, row.ne_within)}"
    )


def _faster(ratios: tuple[float, float, float] | None) -> str:
    """The median ratio, and within which all seeds lie."""
    return "" if ratios is None else f"{ratios[1]:.2f} ({ratios[0]:.2f}-{ratios[2]:.2f})"


def _within(value: float, within: float | None) -> str:
    return f"{value:.5f}" + (f" ± {within:.5f}" if within is not None else "")
