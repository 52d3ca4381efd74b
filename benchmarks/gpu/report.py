"""The page of a measured device, from the folder that collect.sh filled: docs/benchmarks of it.

    python benchmarks/gpu/report.py results --model h200.safetensors > h200.md
    python benchmarks/gpu/report.py samples/h200 --model h200          # of what ships

What is not in the folder is left out, and said. Nothing is measured here; it takes seconds.
"""

import argparse
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bandwidth
import regimes

from recsmith.bench.journal import load_settings
from recsmith.bench.sharding import bench_sharding
from recsmith.costs.neural.files import Card, find_model, load_model
from recsmith.errors import RecSmithError
from recsmith.files import parse_json, read_text
from recsmith.reports.benchmarks import bench_lines
from recsmith.reports.measurements import summary_lines


def main() -> None:
    parser = argparse.ArgumentParser(description="A page of what was measured.")
    parser.add_argument("folder", type=Path, help="that collect.sh filled")
    parser.add_argument("--model", required=True, help="learned from its samples: a name, or a .safetensors file")
    options = parser.parse_args()
    if not options.folder.is_dir():
        raise SystemExit(f"'{options.folder}' is no folder; give one that collect.sh filled, or samples/h200")
    print("\n".join(page(options.folder, load_model(find_model(options.model))[1])))


def page(folder: Path, card: Card) -> Iterator[str]:
    measured = folder if (folder / "about.json").exists() else folder / "samples"
    yield f"# {card.device}\n"
    yield f"{card.versions}. [How, and what the words mean](../gpu.md)."
    for title, there, lines in (
        ("FBGEMM beside PyTorch", folder / "check.txt", checked),
        ("Bandwidth", folder / "bandwidth.json", bandwidths),
        ("Samples", measured, samples),
        ("Formulas, by regime", measured, lambda path: regimes.table([path])),
        ("Planners, side by side", planned(folder), planners),
    ):
        yield f"\n## {title}\n"
        yield from lines(there) if there.exists() else ["Not measured."]
        if title == "Samples":
            yield from learned(card)


def fenced(lines: list[str]) -> list[str]:
    return ["```", *lines, "```"]


def checked(path: Path) -> list[str]:
    return fenced(read_text(str(path)).rstrip().splitlines())


def bandwidths(path: Path) -> list[str]:
    found: Any = parse_json(read_text(str(path)), str(path))
    return bandwidth.tables(found)


def samples(path: Path) -> list[str]:
    return fenced(summary_lines(path))


def learned(card: Card) -> list[str]:
    off, noise = card.held_out, card.noise
    floor = f"{noise.median:.1%} median, {noise.mean:.1%} mean of {noise.pairs} pairs" if noise.pairs else "unknown"
    return [
        "\n## The learned model\n",
        f"Trained on {card.train:,} groups for {card.epochs} epochs (`{card.variant}`), {card.left_out:,} left out.\n",
        "| on groups that no training saw | |\n|---|---|",
        f"| error of {off.samples:,} groups | {off.median:.1%} median, {off.mean:.1%} mean |",
        f"| forward, backward | {off.forward_median:.1%}, {off.backward_median:.1%} median |",
        f"| Kendall's tau | {off.tau:.3f} |",
        f"| two samples of a case differ by | {floor} |",
    ]


def planned(folder: Path) -> Path:
    """The folder of plans, or the archive of one."""
    return archive if (archive := folder / "plans.tar.gz").exists() else folder / "plans"


def planners(path: Path) -> list[str]:
    if path.is_dir():
        return fenced(bench_lines(bench_sharding(load_settings(path), path, plan_only=True)))
    with tempfile.TemporaryDirectory() as unpacked, tarfile.open(path) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 on
        archive.extractall(unpacked)
        return planners(Path(unpacked) / "plans")


if __name__ == "__main__":
    try:
        main()
    except RecSmithError as error:
        raise SystemExit(str(error)) from None
