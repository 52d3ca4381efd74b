"""Products of dense layers in bf16 beside fp32, on this machine: what `recsmith advise` prices them by.

    python benchmarks/bf16_products.py                    # half a minute of an idle core
    ONEDNN_MAX_CPU_ISA=AVX512_CORE python benchmarks/bf16_products.py    # as a processor without bf16 would

Table of docs/benchmarks/precision.md. Each stack of layers and rectifiers goes forward and backward under autocast and
without, in turn, on one thread; a row is the median of the turns. The last line is what all rows together say: seconds
in bf16 are so many times those in fp32, and so many more for each layer, whose numbers are cast.
"""

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from recsmith.jobs.machine import describe_cpu, processor_flags

STACKS = ((64, 64, 32), (256, 128, 64), (384, 384, 192), (768, 768, 384), (1536, 768, 768), (1536, 3072, 1536))
BATCHES = (256, 1024, 4096)
KNOWN = ("avx512f", "avx512_bf16", "amx_bf16")


def main() -> None:
    """Print the ratio of each stack and batch, and the line that fits them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one turn of the smallest")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    stacks, batches = (STACKS[:2], BATCHES[:1]) if chosen.quick else (STACKS, BATCHES)
    print(f"{describe_cpu()}; {isa()}\n\n| layers | batch | fp32 | bf16 | bf16 beside fp32 |\n|---|---|---|---|---|")
    rows: list[tuple[float, float, float]] = []
    for stack in stacks:
        for batch in batches:
            whole, half = seconds(stack, batch, 1 if chosen.quick else chosen.turns)
            rows.append((whole, float(len(stack) - 1), half))
            names = "-".join(map(str, stack))
            print(
                f"| {names} | {batch} | {whole * 1e3:.2f} ms | {half * 1e3:.2f} ms | {half / whole:.2f} |", flush=True
            )
    times, cast_s = fitted(rows)
    print(f"\nbf16 = {times:.2f} x fp32 + {cast_s:.2e} s for each layer")


def isa() -> str:
    """What of bf16 the processor has, and what the product library may use."""
    flags = processor_flags()
    found = ", ".join(each for each in KNOWN if each in flags) or "no AVX-512"
    return f"{found}; at most {os.environ['ONEDNN_MAX_CPU_ISA']}" if "ONEDNN_MAX_CPU_ISA" in os.environ else found


def seconds(stack: Sequence[int], batch: int, turns: int) -> tuple[float, float]:
    """Median seconds of a forward and backward pass in fp32 and in bf16, in turn."""
    layers: list[nn.Module] = []
    for inward, outward in pairwise(stack):
        layers += [nn.Linear(inward, outward), nn.ReLU()]
    model, data = nn.Sequential(*layers), torch.randn(batch, stack[0])
    spent: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(turns + 2):
        for half in (False, True):
            begun = time.process_time()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                out = model(data)
            out.float().sum().backward()
            if turn >= 2 or turns == 1:
                spent[half].append(time.process_time() - begun)
            model.zero_grad(set_to_none=True)
    return statistics.median(spent[False]), statistics.median(spent[True])


def fitted(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """(factor, seconds of a layer) of least relative squares, neither below 0. rows: fp32 s, layers, bf16 s."""
    whole, layers, half = (np.array(each) for each in zip(*rows, strict=True))
    made, *_ = np.linalg.lstsq(np.stack([whole / half, layers / half], 1), np.ones(len(half)), rcond=None)
    return (float(made[0]), float(made[1])) if made[1] >= 0 else (float(np.median(half / whole)), 0.0)


if __name__ == "__main__":
    main()
