# pyright: basic
"""How the scripts of one visit time what is no fused group: events of the device, a cold cache, and rows that are kept.

A case is a name and a function that returns figures. One that fails is a row with its error, and the others go on;
after an error of the device itself nothing answers in this process, so it ends, and the next one goes on behind that
case.
"""

import gc
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
FLUSHED = 2**28  # bytes written before a call, several times a second-level cache
BROKEN = ("CUDA error", "illegal", "device-side assert", "cuBLAS", "CUBLAS")


class Clock:
    """Seconds of calls on a device: of the device between two events on a GPU, by the wall clock on a CPU."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.gpu = self.device.type == "cuda"
        self._flushed = torch.empty(FLUSHED // 4 if self.gpu else 1, device=self.device)

    def once(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """What a call returns, and its seconds; the device is kept busy until the host has queued the call."""
        if not self.gpu:
            begun = time.perf_counter()
            value = call()
            return value, time.perf_counter() - begun
        for _ in range(8):
            self._flushed.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        value = call()
        end.record()
        end.synchronize()
        return value, start.elapsed_time(end) / 1e3

    def best(self, call: Callable[[], Any], repetitions: int = 5) -> float:
        """The fastest of some calls, after one that is not timed."""
        call()
        return min(self.once(call)[1] for _ in range(repetitions))

    def both(self, forward: Callable[[], Any], gradient: Any = None, repetitions: int = 5) -> Row:
        """forward_s and backward_s of a function of tensors that want gradients, each the fastest."""
        times = []
        for _ in range(repetitions + 1):
            output, forward_s = self.once(forward)
            given = torch.ones_like(output) if gradient is None else gradient
            times.append((forward_s, self.once(lambda made=output, told=given: made.backward(told))[1]))
            del output
        return {"forward_s": min(f for f, _ in times[1:]), "backward_s": min(b for _, b in times[1:])}


def run(
    cases: Iterable[tuple[str, Callable[[], Row]]], path: Path, seconds: float, device: str, most: int | None = None
) -> None:
    """Run cases that the file lacks until the time is over; each row is written before the next case begins."""
    ends = time.monotonic() + seconds
    done = {json.loads(line).get("case") for line in path.open()} if path.exists() else set[str]()
    count = failed = 0
    with path.open("a") as file:
        for name, case in cases:
            if name in done:
                continue
            if time.monotonic() > ends or (most is not None and count >= most):
                print(f"{path.name}: the time is over", flush=True)
                break
            begun = time.monotonic()
            row: Row = {"case": name, "status": "ok"}
            broken = False
            try:
                row |= case()
            except Exception as error:  # whatever a library raises is what this row tells
                words = str(error).strip()
                row |= {"status": "failed", "error": type(error).__name__, "message": words[:600]}
                broken = device == "cuda" and any(each in words for each in BROKEN)
                failed += 1
                del error
            file.write(json.dumps(row | {"elapsed_s": round(time.monotonic() - begun, 3)}) + "\n")
            file.flush()
            count += 1
            gc.collect()
            if device == "cuda" and not broken:
                torch.cuda.empty_cache()
            if broken:
                print(f"{path.name}: the device no longer answers after {name}", flush=True)
                raise SystemExit(3)
    print(f"{path.name}: {count:,} cases, {failed} of them failed", flush=True)
