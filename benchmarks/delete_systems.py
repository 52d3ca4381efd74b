"""Each system of training can be deleted: its folder and its line go, in a copy of src, and a plain run still trains.

    python benchmarks/delete_systems.py                  # all of them, a minute
    python benchmarks/delete_systems.py towers arrays

After each deletion the copy is asked for the schema of a run, a dry run, and a run of ten steps on one rank, whose loss
must be what it is with all systems. What still imports the system is told: commands and reports that show it, and other
systems that use it.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
SEAMS = Path("recsmith/training/seams/system.py")
FOLDER = Path("recsmith/training/systems")
RUN = {
    "schema": "recsmith/run/1",
    "output": "out",
    "data": {
        "train": {"format": "generator", "num_samples": 640, "features": [{"name": "a", "num_embeddings": 50}]},
        "batch_size": 64,
    },
    "metrics": {"every": 10},
}


def main() -> None:
    """Delete one after the other, and print a row for each; exit 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", help="their folders; all of them where none is named")
    known = [each.name for each in sorted((SRC / FOLDER).iterdir()) if (each / "__init__.py").exists()]
    chosen = parser.parse_args().systems or known
    whole, _ = trained(SRC)
    print("| system | a plain run without it | still imported by |\n|---|---|---|")
    broken = 0
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "src"
            shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("__pycache__"))
            delete(copy, name)
            loss, said = trained(copy)
            used = ", ".join(sorted(importers(copy, name))) or "nothing"
        same = loss is not None and loss == whole
        broken += not same
        print(f"| {name} | {'the same loss' if same else said or f'{loss} instead of {whole}'} | {used} |", flush=True)
    sys.exit(bool(broken))


def delete(src: Path, name: str) -> None:
    """Remove a system's folder, and its name in the list of systems."""
    shutil.rmtree(src / FOLDER / name)
    file = src / SEAMS
    text = file.read_text()
    assert text.count(f'"{name}", ') + text.count(f'"{name}",\n') == 1, name
    file.write_text(text.replace(f'"{name}", ', "").replace(f'"{name}",\n', "\n"))


def importers(src: Path, name: str) -> set[str]:
    """Modules that import from a system's folder."""
    package = ".".join((*FOLDER.parts, name))
    found: set[str] = set()
    for file in (src / "recsmith").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                found.add(str(file.relative_to(src / "recsmith").with_suffix("")))
    return found


def trained(src: Path) -> tuple[float | None, str]:
    """(log loss of a plain run under a source tree, what went wrong)."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(src)}
        (Path(folder) / "run.json").write_text(json.dumps(RUN))
        for words in (["schema", "run"], ["train", "run.json", "--dry-run"], ["train", "run.json"]):
            done = subprocess.run(
                [sys.executable, "-m", "recsmith", *words], cwd=folder, env=environment, capture_output=True, text=True,
                timeout=300, check=False,
            )  # fmt: skip
            if done.returncode:
                return None, f"{' '.join(words)}: {done.stderr.strip().splitlines()[-1]}"
        lines = map(json.loads, (Path(folder) / "out" / "log.jsonl").read_text().splitlines())
        return next(each["logloss"] for each in lines if each["event"] == "train"), ""


if __name__ == "__main__":
    main()
