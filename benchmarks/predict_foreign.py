"""What one captured step is worth on a machine that no model was trained on: errors before and after `--calibrate`.

python benchmarks/predict_foreign.py measure FOLDER            # trains and captures, some seconds each; resumes
python benchmarks/predict_foreign.py table FOLDER [MACHINE]

The other machine is this one with two threads a kernel: every figure of machine `cpu` is of one thread, so kernels are
off by other factors for each kind and size, and overheads by those of a pool of threads. Each model is captured at four
batch sizes on one rank; the capture of the smallest one calibrates, and the three others judge.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from predict import MODELS, Sizes, plan_of, words_of

from recsmith.jobs.launch import launch
from recsmith.prediction.kernels import geometric_error
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.predictions import calibrate
from recsmith.prediction.traces import load_capture

THREADS = 2
SIZES = Sizes(MODELS)


def measure(home: Path) -> None:
    for name in MODELS:
        for batch in SIZES.batches:
            folder = home / f"{name}-{batch}-threads-{THREADS}"
            if (folder / "rank-0.about.json").exists():
                continue
            words = words_of(SIZES, (name, batch, 1), folder) | {"threads": THREADS}
            launch("predict_jobs:train", words, ranks=1, timeout_s=120)
            print(name, batch, flush=True)


def table(home: Path, machine: Machine) -> None:
    print("model        batch  measured    before     after")
    before, after, real = list[float](), list[float](), list[float]()
    for name, model in MODELS.items():
        graphs = {batch: load_capture(home / f"{name}-{batch}-threads-{THREADS}").graph for batch in SIZES.batches}
        mended = calibrate(machine, graphs[SIZES.batches[0]], "capture").machine
        for batch in SIZES.batches[1:]:
            plan = plan_of(SIZES, batch, 1) if "dlrm" in name else None
            steps = [predict_graph(model_graph(model, by, plan=plan, ranks=1, batch=batch)).step_s
                     for by in (machine, mended)]  # fmt: skip
            measured = graphs[batch].measured_s or np.nan
            print(f"{name:<12} {batch:>5} {measured * 1e3:>7.2f}ms {steps[0] / measured - 1:>+9.1%} "
                  f"{steps[1] / measured - 1:>+9.1%}")  # fmt: skip
            before.append(steps[0])
            after.append(steps[1])
            real.append(measured)
    errors = [geometric_error(np.array(some), np.array(real)) for some in (before, after)]
    print(f"geomean                      {errors[0]:>9.1%} {errors[1]:>9.1%}")


def main(words: list[str]) -> Any:
    if words[:1] == ["measure"] and len(words) == 2:
        return measure(Path(words[1]))
    if words[:1] == ["table"] and len(words) in (2, 3):
        return table(Path(words[1]), load_machine(words[2] if words[2:] else "cpu"))
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
