"""What memory and embedding kernels of a device reach: copies by size, lookups by dim and by how often a row is read.

    python benchmarks/gpu/bandwidth.py --hardware cuda --output bandwidth.json
    python benchmarks/gpu/bandwidth.py --hardware cpu --ids 262144
    python benchmarks/gpu/bandwidth.py --show bandwidth.json

A copy moves its bytes twice, out and in. Lookups: one table, 64 ids a bag, fp32, rows drawn evenly; sgd. Rates count
a row of each id (forward), and each different row read and written (backward), whether a cache has it or memory.
"""

import argparse
from typing import Any

from recsmith.errors import RecSmithError, UsageError
from recsmith.files import dump_json, parse_json, read_text, write_text
from recsmith.hardware import Case, load_hardware
from recsmith.measuring.columns import origin_columns
from recsmith.units import format_size
from recsmith.workloads import AccessProfile, Feature, Table, Workload

COPIES = tuple(2**exponent for exponent in range(16, 32, 3))  # 64 KiB to 2 GiB
DIMS = (4, 8, 16, 32, 64, 128, 256, 512)
REUSE = (1, 4, 16, 64, 1024)  # ids a row
POOLING = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Bandwidth of copies and lookups.")
    parser.add_argument("--hardware", default="cuda", help="cuda or cpu")
    parser.add_argument("--ids", type=int, default=2**22, help="of a lookup")
    parser.add_argument("--output", help="file of JSON to write")
    parser.add_argument("--show", help="only print the tables of such a file")
    options = parser.parse_args()
    if options.show:
        found: Any = parse_json(read_text(options.show), options.show)
    else:
        found = measure(options.hardware, options.ids)
        if options.output:
            write_text(options.output, dump_json(found))
    print("\n".join(tables(found)))


def measure(name: str, ids: int) -> dict[str, Any]:
    hardware: Any = load_hardware(name)
    if not hasattr(hardware, "copy_seconds"):
        raise UsageError(f"hardware {name} has no memory to copy in; measure cuda or cpu")
    copies = [
        {"bytes": size, "seconds": hardware.copy_seconds(size)}
        for size in COPIES
        if size <= 2 * hardware.scale.elements
    ]
    cases = [lookup(dim, reuse, ids) for dim in DIMS for reuse in REUSE]
    lookups = [row_of(hardware.measure(case), case) for case in cases if case.elements <= hardware.scale.elements]
    return {"origin": origin_columns(0.0, hardware.name, hardware.device, hardware.versions), "copies": copies,
            "lookups": lookups}  # fmt: skip


def lookup(dim: int, reuse: int, ids: int) -> Case:
    feature = Feature(name="t", pooling_factor=POOLING)
    table = Table(
        name="t",
        num_embeddings=max(1, ids // reuse),
        embedding_dim=dim,
        features=(feature,),
        access=AccessProfile(zipf=0),
    )
    return Case(seed=0, number=0, workload=Workload(batch_size=ids // POOLING, optimizer="sgd", tables=(table,)))


def row_of(found: Any, case: Case) -> dict[str, Any]:
    if found.status != "ok":
        raise UsageError(f"{case.tables[0]} could not be measured: {found.message}")
    (table,) = case.tables
    return {
        "dim": table.embedding_dim, "rows": table.num_embeddings, "ids": sum(case.lookups),
        "unique": found.unique_rows[0], "forward_s": found.forward_s, "backward_s": found.backward_s,
    }  # fmt: skip


def tables(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['origin']['device']}; {found['origin']['versions']}",
        "",
        "| copy | GB/s, read and written |",
        "|---|---|",
    ]
    lines += [
        f"| {format_size(each['bytes'])} | {2 * each['bytes'] / each['seconds'] / 1e9:,.4g} |"
        for each in found["copies"]
    ]
    lines += [
        "",
        "| dim | ids a row | different rows | forward, ms | GB/s | backward, ms | GB/s |",
        "|---|---|---|---|---|---|---|",
    ]
    return lines + [line(each) for each in found["lookups"]]


def line(each: dict[str, Any]) -> str:
    row = 4 * each["dim"]
    read, updated = each["ids"] * row / each["forward_s"], 2 * each["unique"] * row / each["backward_s"]
    reuse = each["ids"] / each["rows"]
    return (
        f"| {each['dim']} | {reuse:,.0f} | {each['unique']:,} | {each['forward_s'] * 1e3:.3f} | {read / 1e9:,.3g} "
        f"| {each['backward_s'] * 1e3:.3f} | {updated / 1e9:,.3g} |"
    )


if __name__ == "__main__":
    try:
        main()
    except RecSmithError as error:
        raise SystemExit(str(error)) from None
