"""Each system of training can be deleted: its folder, its tests and its line go, in a copy, and the rest is as it was.

    python benchmarks/delete_systems.py                  # all of them, some minutes
    python benchmarks/delete_systems.py towers arrays
    python benchmarks/delete_systems.py towers --tests   # the tests that name it elsewhere run, too
    python benchmarks/delete_systems.py towers --all-tests   # and those of the rest of training

After each deletion the copy is asked for the schema of a run, a dry run, and a run of ten steps on one rank, whose loss
must be what it is with all systems; and pytest collects all other tests. --tests runs those that name the system or its
modules, themselves or in what they import of tests/: no other module of src/ names it, so others can only see that it
is gone where they ask for all systems, and those of `REST` do. Its commands are gone from `recsmith --help`. What names
the system outside of its folder is told: nothing but the list.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from affected import Modules
from import_graph import reach

ROOT = Path(__file__).resolve().parents[1]
LISTED = Path("src/recsmith/training/listed.py")
FOLDER = Path("src/recsmith/training/systems")
TESTS = Path("tests/training/systems")
COPIED = ("src", "tests", "docs", "examples", "benchmarks", "packages", "samples", "web", "pyproject.toml", "README.md",
          "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", ".ci")  # fmt: skip
REST = ["tests/training/run", "tests/training/job", "tests/training/launch", "tests/training/optimizers",
        "tests/training/collectives", "tests/training/tables", "tests/training/stores", "tests/training/watchers",
        "tests/training/results", "tests/training/sources", "tests/training/steps", "tests/training/test_jobs.py",
        "tests/jobs/test_log_lines.py", "tests/cli/test_train.py", "tests/cli/test_surface.py"]  # fmt: skip
AFTER = ("training", "advising", "testing", "reports", "web", "cli")  # rooms that can import a system
COMPONENT_KEYS = {"STEP": "pipeline", "ROWS": "rows", "WATCHER": "watchers", "UPDATE": "update",
                  "TABLES": "table_module", "collective": "comms", "optimizer": "dense",
                  "PREDICTED": "optimizer"}  # fmt: skip
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
    parser.add_argument("--tests", action="store_true", help="run the tests that name the system, too")
    parser.add_argument("--all-tests", action="store_true", help="run those of the rest of training, too")
    known = [each.name for each in sorted((ROOT / FOLDER).iterdir()) if (each / "__init__.py").exists()]
    options = parser.parse_args()
    whole, _ = trained(ROOT / "src")
    print("| system | a plain run without it | the other tests | named outside its folder by |\n|---|---|---|---|")
    broken = 0
    for name in options.systems or known:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            for each in COPIED:
                take(ROOT / each, copy / each)
            used = ", ".join(sorted(names(copy, name))) or "nothing"
            delete(copy, name)
            loss, said = trained(copy / "src")
            tests = tested(copy, ["--collect-only", "tests"])
            chosen = naming_tests(copy, name) if options.tests else []
            chosen += REST if options.all_tests else []
            if chosen and not tests:
                tests = tested(copy, chosen)
        same = loss is not None and loss == whole
        broken += not same or bool(tests)
        run = "the same loss" if same else said or f"{loss} instead of {whole}"
        green = f"green: {len(chosen)} files" if chosen else "collected"
        print(f"| {name} | {run} | {tests or green} | {used} |", flush=True)
    sys.exit(bool(broken))


def take(source: Path, target: Path) -> None:
    """Copy a file or folder of the repository, without what Python compiled."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "_build", "node_modules"))
    elif source.exists():
        shutil.copy(source, target)


def delete(copy: Path, name: str) -> None:
    """Remove a system's folder, its tests, and its entry in the list of systems."""
    shutil.rmtree(copy / FOLDER / name)
    shutil.rmtree(copy / TESTS / name, ignore_errors=True)
    text = (copy / LISTED).read_text()
    listed = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict))
    lines = text.splitlines(keepends=True)
    for key, entry in zip(listed.keys, listed.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == name:
            del lines[key.lineno - 1 : entry.end_lineno]
    (copy / LISTED).write_text("".join(lines))


def names(root: Path, name: str) -> set[str]:
    """Sources of training and of what imports it, outside the folders of systems, that name a system.

    Its folder, a key of a run or of a card that is its own, or a component as a run names it (`rows: tiered`).
    """
    record = ast.parse((root / FOLDER / name / "__init__.py").read_text())
    words = [rf"training[./]systems[./]{name}\b", rf"^    \"{name}\": \("]
    for key in own_keys(record):
        path, _, last = key.rpartition(".")
        words += [rf"{path}\.{last}\b"] if path else [rf"run\.{last}\b", rf"`{last}[`:]"]
        words.append(rf"^    {last}: Any = ")
    for kind, component in components(record):
        words.append(rf"{COMPONENT_KEYS[kind]}: {component}\b")
    named = [re.compile(word, re.MULTILINE) for word in words]
    return {file for file, text in sources(root).items() if any(each.search(text) for each in named)}


@cache
def sources(root: Path) -> dict[str, str]:
    """Sources of training and of what imports it, outside the folders of systems: texts by their files."""
    package = root / "src" / "recsmith"
    files = (each for room in AFTER for each in (package / room).rglob("*.py") if FOLDER.name not in each.parts)
    return {str(each.relative_to(package)): each.read_text() for each in files}


def own_keys(record: ast.Module) -> Iterator[str]:
    """Keys of a run, with dots, and of a card (`card.NAME`) that a record says are its own."""
    for system in (node for node in record.body if isinstance(node, ast.ClassDef)):
        said = {target.id: (node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None)
                for node in system.body if isinstance(node, ast.Assign | ast.AnnAssign)
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(target, ast.Name)}  # fmt: skip
        if "about" in said and isinstance(key := said["key"], ast.Constant):
            yield str(key.value)
        if isinstance(cards := said.get("cards"), ast.Dict):
            yield from (f"card.{key.value}" for key in cards.keys if isinstance(key, ast.Constant))


def components(record: ast.Module) -> Iterator[tuple[str, str]]:
    """(kind, name) of each component that a record registers."""
    for node in ast.walk(record):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "register":
            kind, name = node.args[:2]
            if isinstance(name, ast.Constant):
                yield (str(kind.value) if isinstance(kind, ast.Constant) else ast.unparse(kind)), str(name.value)


def naming_tests(copy: Path, name: str) -> list[str]:
    """Files of tests that name a deleted system, its modules or keys: themselves, or in what they import of tests/."""
    keys = own_keys(ast.parse((ROOT / FOLDER / name / "__init__.py").read_text()))
    written = "|".join([rf"{re.escape(key)}\b" if "." in key else rf"[\"']{key}[=\"']" for key in keys])
    named = re.compile(
        rf"systems\.{name}\b|[\"']{name}[\"']|\b(?:data|model)\.{name}\b|\b{name}=" + (f"|{written}" if written else "")
    )
    modules, inside = Modules(copy), copy / "tests"
    paths = {each: path for each, path in modules.paths.items() if path.is_relative_to(inside)}
    found = {each for each, path in paths.items() if named.search(path.read_text())}
    needs = {each: {other for other in modules.needs[each] & paths.keys() if not other.endswith("conftest")}
             for each in paths}  # fmt: skip
    tests = (each for each, path in paths.items() if path.name.startswith("test_"))
    return sorted(str(paths[each].relative_to(copy)) for each in tests if each in found or reach(needs, each) & found)


def tested(copy: Path, words: list[str]) -> str:
    """What is wrong with the tests of a copy; nothing where all are well."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *words], cwd=copy, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wrong = re.findall(r"^(?:ERROR|FAILED) (\S+)", done.stdout, re.MULTILINE)
    return ", ".join(wrong) or ("" if done.returncode == 0 else done.stdout[-300:] + done.stderr[-300:])


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
