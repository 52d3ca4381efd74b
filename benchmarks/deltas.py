"""How large deltas of models are beside the rows that changed, and how long they take to make and to apply.

    python benchmarks/deltas.py                                  # two tables of 2,000,000 rows; 6 GiB of disk
    python benchmarks/deltas.py --rows 20000000 --columns 64     # 20 GiB of disk

Rows that change are drawn. Seconds are of the clock, so the machine should be idle; beside them is what copying the
model's folder takes on the same disk.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from recsmith.training import apply_deltas, make_delta
from recsmith.training.job.card import CARD
from recsmith.training.job.export import WEIGHTS, arrays_of, make_tensor_file
from recsmith.training.results.deltas import CHANGED
from recsmith.training.stores.protocol import WholeTensor
from recsmith.units import format_size

SHARES = (0.001, 0.01, 0.1)  # of rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of each of two tables")
    parser.add_argument("--columns", type=int, nargs="*", default=[4, 16, 64, 128])
    words = parser.parse_args()
    print(
        "| columns | rows changed | bytes of these | delta over these | copy | make | apply |\n"
        "|---|---|---|---|---|---|---|"
    )
    for columns in words.columns:
        for share in SHARES:
            with tempfile.TemporaryDirectory() as folder:
                print(row(Path(folder), words.rows, columns, share), flush=True)


def row(folder: Path, rows: int, columns: int, share: float) -> str:
    """One model, a newer one, and the delta between them."""
    old, new = folder / "old", folder / "new"
    old.mkdir()
    tables = {name: WholeTensor(torch.float32, (rows, columns)) for name in ("first", "second")}
    make_tensor_file(old / WEIGHTS, tables)
    generator = np.random.default_rng(0)
    for table in arrays_of(old / WEIGHTS).values():
        table[...] = generator.random(table.shape, dtype=np.float32)
    (old / CARD).write_text("{}")
    copied = timed(lambda: shutil.copytree(old, new))
    changed = 0
    for table in arrays_of(new / WEIGHTS).values():
        some = np.flatnonzero(generator.random(rows) < share)
        table[some] += 1
        changed += len(some)
    made = timed(lambda: make_delta(old, new, folder / "delta"))
    applied = timed(lambda: apply_deltas(old, [folder / "delta"], folder / "made"))
    assert (folder / "made" / WEIGHTS).read_bytes() == (new / WEIGHTS).read_bytes()
    least, found = changed * columns * 4, (folder / "delta" / CHANGED).stat().st_size
    return (
        f"| {columns} | {share:.1%} | {format_size(least)} | {found / least:.3f} | {copied:.2f} s | {made:.2f} s "
        f"| {applied:.2f} s |"
    )


def timed(run: Callable[[], object]) -> float:
    begun = time.monotonic()
    run()
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
