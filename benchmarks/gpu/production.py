"""Kernels of production size, measured again on another GPU: what one took beside what the other takes, by case.

python benchmarks/gpu/production.py cases FOLDER cases.jsonl.xz            # anywhere: the cases of a measured folder
python benchmarks/gpu/production.py measure cases.jsonl.xz rows.jsonl --hardware cuda:h200 --seconds 230
python benchmarks/gpu/production.py pairs FOLDER rows.jsonl                # anywhere: the table
python benchmarks/gpu/production.py samples FOLDER rows.jsonl TARGET       # anywhere: folders that learn cost reads
python benchmarks/gpu/production.py pack FOLDER TARGET                     # anywhere: a folder as samples/ keeps it

FOLDER holds random groups (production-*), loads of ranks of plans (ranks.jsonl) and shapes of data_parallel tables
(copies.jsonl), as the first GPU gave them, packed by xz or not; samples/h100-production is one. Its cases are taken in
a random order that is the same every time, so a part of them is a fair sample of all. A row is on the disk before the
next case begins; measured again, a file goes on.

A line of cases is one of: "random" and "rank", one or several fused kernels in one step; "copies", the dense kernels of
tables that every rank has whole, and the optimizers that step on them.
"""

import argparse
import gzip
import json
import lzma
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.errors import RecSmithError
from recsmith.hardware import Case, CaseScale, load_hardware
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.optimizers import OPTIMIZERS

ORDER = 86  # the seed of the order of cases
POOL = 2**26  # random numbers that ids come from; of another length they would be other ids
OUTPUTS = 400_000_000  # elements of outputs and their gradient, at most
ELEMENTS = {"cuda": 25_000_000_000, "cpu": 2**26}  # of weights and states together: 93 GiB, of the 139 of an H200
STEPS = ("sgd", "adagrad", "rowwise_adagrad", "adam")
LEAST_REPETITIONS, LEAST_S = 2, 0.003  # of a case at least, after one that is not timed
BROKEN = ("CUDA error", "no longer answers", "illegal")  # after which nothing answers in this process
LEAST_PAIRS, LEAST_OF_CLASS = 20, 10  # cases that factors are worked out from, and that a class has at least
FIRST_TIMES = "the first GPU's times"
KEPT = ("status", "forward_s", "backward_s", "forward_median_s", "backward_median_s", "spread", "probe_s",
        "probe_moved", "repetitions", "message")  # fmt: skip
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("cases")
    made.add_argument("folder", type=Path)
    made.add_argument("target", type=Path)
    measured = commands.add_parser("measure")
    measured.add_argument("cases", type=Path)
    measured.add_argument("rows", type=Path)
    measured.add_argument("--hardware", default="cuda")
    measured.add_argument("--seconds", type=float, default=230.0)
    measured.add_argument("--most", type=int, help="only so many cases")
    packed = commands.add_parser("pack")
    packed.add_argument("folder", type=Path)
    packed.add_argument("target", type=Path)
    for name in ("pairs", "samples"):
        read = commands.add_parser(name)
        read.add_argument("folder", type=Path)
        read.add_argument("rows", type=Path)
        if name == "samples":
            read.add_argument("target", type=Path)
    options = parser.parse_args()
    if options.command == "cases":
        write_cases(options.folder, options.target)
    elif options.command == "measure":
        measure(options.cases, options.rows, options.hardware, options.seconds, options.most)
    elif options.command == "pack":
        pack(options.folder, options.target)
    elif options.command == "pairs":
        print("\n".join(pairs(options.folder, options.rows)))
    else:
        write_samples(options.folder, options.rows, options.target)


# --- cases -----------------------------------------------------------------------------------------------------------


def known_rows(folder: Path) -> Iterator[tuple[str, Row, Row]]:
    """(key, what the case is, what the first GPU took) of each case of a folder."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("production-*/*.parquet")):
        for row in pq.read_table(path).to_pylist():
            if row["visit"] == 0:
                yield f"random-{row['number']}", {"kind": "random", "blocks": [1], "cases": [shape_of(row)]}, row
    for row in lines_of(packed_or_not(folder / "ranks.jsonl")):
        if "load" in row and row["visit"] == 0:
            case = {"kind": "rank", "blocks": row["blocks"], "cases": [shape_of(each) for each in row["cases"]]}
            yield f"rank-{row['load']}", case, row
    for row in lines_of(packed_or_not(folder / "copies.jsonl")):
        if "shape" in row and row["visit"] == 0:
            names = ("rows", "dim", "batch", "pooling", "zipf")
            yield f"copies-{row['shape']}", {"kind": "copies"} | {name: row[name] for name in names}, row


def shape_of(row: Row) -> Row:
    names = ("seed", "number", "optimizer", "data_type", "batch_size", "rows", "dim", "pooling_factor", "zipf")
    return {name: row[name] for name in names}


def lines_of(path: Path) -> Iterator[Row]:
    """The lines of a file, packed by xz or gzip where its name says so."""
    opens = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opens(path, "rt") as file:
        yield from map(json.loads, file)


def packed_or_not(path: Path) -> Path:
    """The file of lines, or the one that is packed."""
    return path if path.exists() else path.with_name(f"{path.name}.xz")


def write_cases(folder: Path, target: Path) -> None:
    """The cases of a folder in a random order, one a line."""
    unique = {key: {"key": key} | case for key, case, _ in known_rows(folder)}
    cases = list(unique.values())
    random.Random(ORDER).shuffle(cases)
    with lzma.open(target, "wt", preset=9) as file:
        file.writelines(json.dumps(each) + "\n" for each in cases)
    print(f"{target}: {len(cases):,} cases, {target.stat().st_size:,} bytes")


def case_of(raw: Row, blocks: int) -> Case:
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, data_type=raw["data_type"],
              features=(Feature(name=f"t{i}", pooling_factor=pooling),), access=AccessProfile(zipf=zipf))
        for i, (rows, dim, pooling, zipf) in enumerate(
            zip(raw["rows"], raw["dim"], raw["pooling_factor"], raw["zipf"], strict=True))
    )  # fmt: skip
    workload = Workload(batch_size=raw["batch_size"], optimizer=raw["optimizer"], tables=tables)
    return Case(seed=raw["seed"], number=raw["number"], workload=workload, blocks=blocks)


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(path: Path, target: Path, name: str, seconds: float, most: int | None) -> None:
    """Measure cases until the time is over, each row written before the next case begins."""
    ends = time.monotonic() + seconds
    with lzma.open(path, "rt") as file:
        cases = [json.loads(line) for line in file][:most]
    done = {row.get("key") for row in lines_of(target)} if target.exists() else set[str]()
    kind = name.partition(":")[0]
    pool, outputs = (POOL, OUTPUTS) if kind == "cuda" else (2**22, 2**26)
    scale = CaseScale(
        name="production", least_work=2**15, most_work=1.4e8, lookups=pool, elements=ELEMENTS[kind], outputs=outputs,
        rows=10**8, apart=False,
    )  # fmt: skip
    hardware: Any = load_hardware(name, scale)
    hardware.least_s = LEAST_S
    print(f"{hardware.device}; {len(cases):,} cases, {len(done):,} of them measured before", flush=True)
    count, told = 0, time.monotonic()
    with target.open("a") as file:
        file.write(json.dumps({"device": hardware.device, "versions": hardware.versions, "hardware": name}) + "\n")
        for case in cases:
            if case["key"] in done:
                continue
            if time.monotonic() > ends:
                print("the time is over", flush=True)
                break
            begun = time.monotonic()
            row = row_of(hardware, case, begun)
            file.write(json.dumps(row) + "\n")
            file.flush()
            if any(words in row.get("message", "") for words in BROKEN):
                print(f"the device no longer answers after {case['key']}{why(row['message'])}", flush=True)
                raise SystemExit(3)
            count += 1
            if time.monotonic() - told > 20:
                told = time.monotonic()
                print(f"{count:,} cases, {ends - told:.0f} s left", flush=True)
    print(f"{target}: {count:,} cases added", flush=True)


def why(message: str) -> str:
    if "illegal instruction" not in message:
        return ""
    return ": it needs a kernel whose code the pack lacks (pack.sh says which those are)"


def row_of(hardware: Any, case: Row, begun: float) -> Row:
    row: Row = {"key": case["key"]}
    try:
        row |= copies_of(hardware, case) if case["kind"] == "copies" else fused(hardware, case)
    except (RuntimeError, AssertionError, ValueError, RecSmithError) as error:
        row |= {"status": "failed", "message": f"{type(error).__name__}: {error}"[:300]}
    return row | {"elapsed_s": round(time.monotonic() - begun, 4)}


def fused(hardware: Any, case: Row) -> Row:
    cases = tuple(case_of(raw, blocks) for raw, blocks in zip(case["cases"], blocks_of(case), strict=True))
    found = hardware.measure_groups(cases, least=LEAST_REPETITIONS)
    return {name: getattr(found, name) for name in KEPT} | {"unique_rows": list(found.unique_rows)}


def blocks_of(case: Row) -> list[int]:
    """Blocks of each kernel: a load tells one number for each."""
    return case["blocks"] if len(case["blocks"]) == len(case["cases"]) else case["blocks"] * len(case["cases"])


def copies_of(hardware: Any, case: Row) -> Row:
    """Seconds of data_parallel tables: forward, backward into a new gradient, clearing it, a step of each optimizer."""
    import torch
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import DenseTableBatchedEmbeddingBagsCodegen

    from recsmith.hardware.lookups import draw_lookups, uniform_pool

    number = int(case["key"].rpartition("-")[2])
    raw = {"seed": 777_002, "number": number, "optimizer": "sgd", "data_type": "fp32", "rows": case["rows"],
           "batch_size": case["batch"], "dim": case["dim"], "pooling_factor": case["pooling"],
           "zipf": case["zipf"]}  # fmt: skip
    drawn = case_of(raw, 1)
    pool = getattr(hardware, "_pool", None)
    lookups = draw_lookups(drawn, pool if pool is not None else uniform_pool(POOL, torch.device("cpu")))
    cuda = lookups.ids.is_cuda
    tables = DenseTableBatchedEmbeddingBagsCodegen(list(zip(case["rows"], case["dim"], strict=True)), use_cpu=not cuda)
    gradient = torch.full((case["batch"], sum(case["dim"])), 0.01, device=lookups.ids.device)

    def backward(output: Any) -> None:
        tables.weights.grad = None
        output.backward(gradient)

    forward_s, backward_s = list[float](), list[float]()
    for _ in range(5):
        output, seconds, _ = hardware._timed(lambda: tables(lookups.ids, lookups.offsets))
        forward_s.append(seconds)
        backward_s.append(hardware._timed(lambda made=output: backward(made))[1])
    del output
    whole, mine = tables.weights.detach(), [rows * dim for rows, dim in zip(case["rows"], case["dim"], strict=True)]
    found: Row = {"forward_s": min(forward_s[1:]), "backward_s": min(backward_s[1:])}
    parameters = []
    for piece, dim in zip(whole.split(mine), case["dim"], strict=True):
        parameters.append(torch.nn.Parameter(piece.view(-1, dim)))
        parameters[-1].grad = torch.full_like(parameters[-1], 0.01)
    tables.weights.grad = None

    def clear() -> None:
        for each in parameters:
            each.grad.zero_()

    found["clear_s"] = min(hardware._timed(clear)[1] for _ in range(4))
    found["step_s"] = {}
    for name in STEPS:
        optimizers = [stepper(name)([each], lr=0.01) for each in parameters]

        def step(made: Sequence[Any] = optimizers) -> None:
            for each in made:
                each.step()

        step()
        found["step_s"][name] = min(hardware._timed(step)[1] for _ in range(4))
        del optimizers
    return {"status": "ok", "unique_rows": list(lookups.unique_rows)} | found


def stepper(name: str) -> Any:
    """The class of an optimizer without fusion."""
    import importlib

    module, _, kind = OPTIMIZERS[name].torch_class.partition(":")
    return getattr(importlib.import_module(module), kind)


# --- the tables ------------------------------------------------------------------------------------------------------


def pairs(folder: Path, path: Path) -> Iterator[str]:
    """The times of the second GPU over those of the first, by kind of case."""
    first = {key: (case, row) for key, case, row in known_rows(folder)}
    rows = [row for row in lines_of(path) if "key" in row]
    origin = next((row for row in lines_of(path) if "device" in row), {})
    yield f"{origin.get('device')}; {origin.get('versions')}; {len(rows):,} cases"
    failed = [row for row in rows if row["status"] != "ok"]
    for message in sorted({row.get("message", "")[:120] for row in failed}):
        yield f"failed: {sum(row.get('message', '')[:120] == message for row in failed)} cases: {message}"
    both = [(*first[row["key"]], row) for row in rows if row["status"] == "ok" and row["key"] in first]
    both = [each for each in both if each[1].get("status", "ok") == "ok"]
    same = sum(case["kind"] == "copies" or row["unique_rows"] == old["unique_rows"] for case, old, row in both)
    yield f"{len(first) - len({row['key'] for *_, row in both}):,} of {len(first):,} cases have no pair"
    yield f"{same:,} of {len(both):,} read the same number of different rows in every table"
    yield "\n| cases | pairs | forward, second / first: median (middle half) | backward | both |\n|---|---|---|---|---|"
    for name, chosen in kinds(both):
        if chosen:
            cells = [ratios(chosen, part) for part in ("forward_s", "backward_s", "")]
            yield f"| {name} | {len(chosen):,} | {' | '.join(cells)} |"
    copies = [(old, row) for case, old, row in both if case["kind"] == "copies"]
    if copies:
        for part in ("clear_s", *STEPS):
            values = [part_of(row, part) / part_of(old, part) for old, row in copies]
            yield f"| data_parallel: {part} | {len(values)} | | | {middle(values)} |"

    yield from followed([each for each in both if each[0]["kind"] != "copies"])


def followed(chosen: list[tuple[Row, Row, Row]]) -> Iterator[str]:
    """How far the second GPU's times are from the first's times one factor, and a factor of each class.

    Factors are medians of one half of the cases, by their order, and errors are of the other half.
    """
    if len(chosen) < LEAST_PAIRS:
        return
    ways: dict[str, Callable[[Row, Row], tuple[Any, ...]]] = {
        "no factor": lambda *_: (),
        "one factor": lambda *_: (),
        "of each optimizer and data type": lambda case, _: of_kind(case),
        "of each size: decades of milliseconds, halved": lambda _, old: (size_class(old),),
        "of each optimizer, type and size": lambda case, old: (*of_kind(case), size_class(old)),
        "of the same, and blocks": lambda case, old: (*of_kind(case), size_class(old), max(case["blocks"]) > 1),
    }
    whole = middle([seconds_of(row, "") / seconds_of(old, "") for _, old, row in chosen])
    yield f"\nall kernels, second / first: {whole}"
    yield f"\n| {FIRST_TIMES} | factors | off by, median | 90th percentile | forward | backward |\n|" + "---|" * 6
    for name, class_of in ways.items():
        cells = [errors(chosen, class_of, part, name == "no factor") for part in ("", "forward_s", "backward_s")]
        yield (f"| {name} | {cells[0][0]} | {cells[0][1]:.1%} | {cells[0][2]:.1%} | {cells[1][1]:.1%}, "
               f"{cells[1][2]:.1%} | {cells[2][1]:.1%}, {cells[2][2]:.1%} |")  # fmt: skip


def of_kind(case: Row) -> tuple[str, str]:
    return case["cases"][0]["optimizer"], case["cases"][0]["data_type"]


def size_class(old: Row) -> int:
    """Which half of a decade the first GPU's seconds are in."""
    return int(np.floor(2 * np.log10(old["forward_s"] + old["backward_s"])))


def errors(
    chosen: list[tuple[Row, Row, Row]], class_of: Callable[[Row, Row], tuple[Any, ...]], part: str, plain: bool
) -> tuple[int, float, float]:
    """(factors, median, 90th percentile) of |first times factor / second - 1| of the cases that gave no factor."""
    ratios: dict[tuple[Any, ...], list[float]] = {}
    for case, old, row in chosen[::2]:
        ratios.setdefault(class_of(case, old), []).append(seconds_of(row, part) / seconds_of(old, part))
    whole = 1.0 if plain else float(np.median([each for some in ratios.values() for each in some]))
    factors = {key: float(np.median(some)) for key, some in ratios.items() if len(some) >= LEAST_OF_CLASS}
    found = [
        abs(seconds_of(old, part) * (whole if plain else factors.get(class_of(case, old), whole))
            / seconds_of(row, part) - 1) for case, old, row in chosen[1::2]
    ]  # fmt: skip
    median, high = np.percentile(found, (50, 90)).tolist()
    return 0 if plain else len(factors), median, high


def seconds_of(row: Row, part: str) -> float:
    return row[part] if part else row["forward_s"] + row["backward_s"]


def part_of(row: Row, part: str) -> float:
    return row["step_s"][part] if part in STEPS else row[part]


def kinds(both: list[tuple[Row, Row, Row]]) -> Iterator[tuple[str, list[tuple[Row, Row, Row]]]]:
    fused_ones = [each for each in both if each[0]["kind"] != "copies"]
    yield "random groups", [each for each in both if each[0]["kind"] == "random"]
    yield "ranks of plans", [each for each in both if each[0]["kind"] == "rank"]
    yield "of them row blocks", [each for each in fused_ones if max(each[0]["blocks"]) > 1]
    for optimizer in STEPS:
        yield optimizer, [each for each in fused_ones if each[0]["cases"][0]["optimizer"] == optimizer]
    for data_type in ("fp32", "fp16"):
        yield data_type, [each for each in fused_ones if each[0]["cases"][0]["data_type"] == data_type]
    for low, high in ((0, 2e-4), (2e-4, 1e-3), (1e-3, 5e-3), (5e-3, np.inf)):
        name = f"{low * 1e3:g} to {high * 1e3:g} ms" if np.isfinite(high) else f"{low * 1e3:g} ms and more"
        yield name, [each for each in fused_ones if low <= each[1]["forward_s"] + each[1]["backward_s"] < high]
    yield "data_parallel", [each for each in both if each[0]["kind"] == "copies"]


def ratios(chosen: list[tuple[Row, Row, Row]], part: str) -> str:
    return middle([seconds_of(row, part) / seconds_of(old, part) for _, old, row in chosen])


def middle(values: list[float]) -> str:
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return f"{median:.3f} ({low:.3f} to {high:.3f})"


def write_samples(folder: Path, path: Path, target: Path) -> None:
    """Folders in the form of measurements, with the times of the second GPU in the rows of the first.

    Ids are the same on both GPUs, so what the first one counted of them holds for the second.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = list(lines_of(path))
    origin: Row = next(row for row in lines if "device" in row)
    rows = {row["key"]: row for row in lines if row.get("status") == "ok"}
    loads = {key: row for key, row in rows.items() if key.startswith("rank-")}
    by_number = {old["cases"][0]["number"]: loads[key] for key, _, old in known_rows(folder)
                 if key in loads and len(old["cases"]) == 1}  # fmt: skip
    for home in sorted(each for each in folder.iterdir() if (each / "about.json").exists()):
        kept: list[Row] = []
        for part in sorted(home.glob("*.parquet")):
            table = pq.read_table(part)
            for row in table.to_pylist():
                new = rows.get(f"random-{row['number']}") or by_number.get(row["number"])
                if new is None or row["visit"] or new["unique_rows"] != row["unique_rows"]:
                    continue
                new = {name: new[name] for name in KEPT} | {"elapsed_s": new["elapsed_s"]}
                walls = {"forward_wall_s": new["forward_median_s"], "backward_wall_s": new["backward_median_s"]}
                place = {"position": len(kept), "sample": row["sample"], "device": origin["device"]}
                kept.append(row | new | walls | place | {"versions": f"{origin['versions']}, Python 3.12"})
        if kept:
            made = target / home.name
            made.mkdir(parents=True, exist_ok=True)
            (made / "about.json").write_text((home / "about.json").read_text())
            part = made / f"part-000000000-{len(kept) - 1:09d}.parquet"
            kept_table = pa.Table.from_pylist(kept, schema=table.schema)
            pq.write_table(kept_table, part, compression="zstd", compression_level=19)
            print(f"{made}: {len(kept):,} rows")


# --- packing ---------------------------------------------------------------------------------------------------------


LINES = {"ranks.jsonl": ("reuse_bins",), "plans.jsonl": ("parts", "step", "judges failed", "plan_s", "wall_s"),
         "copies.jsonl": ()}  # files of lines, and what is left out: what can be worked out again  # fmt: skip
DIGITS = 7  # of seconds


def pack(folder: Path, target: Path) -> None:
    """A folder as samples/ keeps it: lines without what can be worked out again, and kernels that say their blocks."""
    target.mkdir(parents=True, exist_ok=True)
    for name, left_out in LINES.items():
        with lzma.open(target / f"{name}.xz", "wt", preset=9) as file:
            for row in lines_of(packed_or_not(folder / name)):
                file.write(json.dumps(rounded({key: row[key] for key in row if key not in left_out})) + "\n")
    add_blocks(folder, target, block_numbers(folder))


def rounded(value: Any) -> Any:
    """Plain data with numbers of DIGITS digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def block_numbers(folder: Path) -> dict[int, int]:
    """Blocks of each kernel of ranks.jsonl, by the number of its case."""
    return {
        case["number"]: blocks
        for row in lines_of(packed_or_not(folder / "ranks.jsonl")) if "load" in row
        for case, blocks in zip(row["cases"], blocks_of(row), strict=True)
    }  # fmt: skip


def add_blocks(folder: Path, target: Path, blocks: dict[int, int]) -> None:
    """The folders of kernels in another place, with the column of blocks behind that of bags."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from recsmith.measuring.parquet_parts import arrow_schema

    for about in sorted(folder.glob("*/about.json")):
        made = target / about.parent.name
        made.mkdir(exist_ok=True)
        (made / "about.json").write_bytes(about.read_bytes())
        for part in sorted(about.parent.glob("*.parquet")):
            rows = pq.read_table(part).to_pylist()
            rows = [row | {"blocks": blocks.get(row["number"], 1) if row["scale"] == "plans" else 1} for row in rows]
            table = pa.Table.from_pylist(rows, schema=arrow_schema("compute"))
            pq.write_table(table, made / part.name, compression="zstd", compression_level=19, use_dictionary=False)
            print(f"{made / part.name}: {len(rows):,} rows")


if __name__ == "__main__":
    try:
        main()
    except RecSmithError as error:
        raise SystemExit(str(error)) from None
