"""What an error of a problem without a plan says to change gives a plan, when it is put on the command line as told."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

FIRST_ANSWER_S = 2.0  # CPU seconds, from the command to its message
TYPES = ("table_wise", "column_wise", "row_wise", "table_row_wise", "data_parallel", "grid_shard")
FIXES = re.compile(
    r"(?P<options>(?:--(?:hbm|reserve|types|kernels|group-size|widths) [^ ;]+ ?)+)"
    r"|(?P<devices>[\d,]+) devices? \((?P<hosts>[\d,]+) hosts?\)"
)


def drawn(seed: int, folder: Path) -> tuple[Path, dict[str, str]]:
    """Tables that weigh more than the devices hold, or one that no device holds in the types that are allowed."""
    draw = Random(seed)
    tables = [
        {
            "name": f"t{number}", "num_embeddings": int(10 ** draw.uniform(2, 7.3)),
            "embedding_dim": draw.choice([4, 16, 64, 128, 256]), "pooling_factor": round(10 ** draw.uniform(0, 2), 1),
            **({"pooling": "none"} if draw.random() < 0.1 else {}),
        }
        for number in range(draw.randint(1, 12))
    ]  # fmt: skip
    optimizer = draw.choice(["sgd", "rowwise_adagrad", "adam"])
    raw = {"schema": "recsmith/workload/1", "batch_size": draw.choice([64, 512, 8192]), "optimizer": optimizer,
           "tables": tables}  # fmt: skip
    path = folder / f"tables-{seed}.json"
    path.write_text(json.dumps(raw))
    per_host, hosts = draw.choice([1, 2, 4, 8]), draw.choice([1, 1, 1, 2, 3])
    weights = sum(4 * each["num_embeddings"] * each["embedding_dim"] for each in tables)
    mib = max(1, int(draw.uniform(0.05, 1.1) * weights / (per_host * hosts) / 2**20))
    words = {"--cluster": f"{draw.choice(['h100', 'a100-80', 'cpu'])}:{per_host}" + (f"x{hosts}" if hosts > 1 else "")}
    words["--hbm"] = f"{mib}MiB"
    if draw.random() < 0.2:
        words["--reserve"] = f"{max(1, mib // 3)}MiB"
    if draw.random() < 0.4:
        words["--types"] = ",".join(draw.sample(TYPES, draw.randint(1, 3)))
    if draw.random() < 0.3:
        words["--widths"] = "torchrec"
    if draw.random() < 0.2 and hosts > 1:
        words["--group-size"] = str(per_host)
    return path, words


def fixed(words: dict[str, str], fix: re.Match[str]) -> dict[str, str]:
    """The words of a command with a change that its error named."""
    if fix["hosts"]:
        per_host = int(fix["devices"].replace(",", "")) // int(fix["hosts"].replace(",", ""))
        device = words["--cluster"].partition(":")[0]
        return words | {"--cluster": f"{device}:{per_host}x{fix['hosts'].replace(',', '')}"}
    told = [each.rstrip(".") for each in fix["options"].split()]
    return words | dict(zip(told[::2], told[1::2], strict=True))


def listed(words: dict[str, str]) -> list[str]:
    return [word for pair in words.items() for word in pair]


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 400), marks=pytest.mark.soak)], ids=["16", "400"])
def test_what_errors_offer_is_planned(run: Callable[..., Any], tmp_path: Path, seeds: range):
    infeasible, tried, slow = 0, 0, dict[int, float]()
    for seed in seeds:
        path, words = drawn(seed, tmp_path)
        begun = time.process_time()
        done = run("plan", path, *listed(words))
        seconds = time.process_time() - begun
        if done.code != 3:
            assert done.code in (0, 1, 2), (seed, done.err)
            continue
        infeasible += 1
        if seconds > FIRST_ANSWER_S:
            slow[seed] = seconds
        offered = list(FIXES.finditer(done.err.partition("Checked to work: ")[2]))
        assert offered or "No single change that was tried is enough" in done.err, (seed, done.err)
        for fix in offered:
            tried += 1
            planned = run("plan", path, *listed(fixed(words, fix)))
            assert planned.code == 0, (seed, words, fix[0], planned.err)
    assert slow == {}
    assert infeasible > len(seeds) / 3
    assert tried > infeasible
