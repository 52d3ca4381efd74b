"""Which tests a change can affect, by who imports whom: what `make check` runs.

    python benchmarks/affected.py --since main      files of tests, a line each; what is not committed counts, too

A test is affected if it reaches a module that has changed: by imports, directly or around corners, by the names of
components ('module:Class'), or by programs that it starts. A name that a package only passes on, such as
`recsmith.plan`, is followed to the module that defines it. What is no module counts by its place: data of a package for
the modules beside it, docs for tests of docs, a script or an example for tests that name it, and what sets up or
serves all tests for all.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from import_graph import reach

ROOT = Path(__file__).resolve().parents[1]
FOR_ALL = re.compile(
    r"pyproject\.toml|setup\.py|Makefile|tests/(conftest|support/(ranks|listeners))\.py|src/recsmith/__init__\.py"
)
DOCS = re.compile(r"(docs|examples|benchmarks)/|[A-Z_]+\.md$")


class Modules:
    """The modules of src/ and of tests/, those of packages/ too, by their dotted names, and what each of them needs."""

    def __init__(self, root: Path = ROOT) -> None:
        """Find the files."""
        self.root = root
        self.paths: dict[str, Path] = {}
        for folder in (root / "src", root / "tests", *root.glob("packages/*/src"), *root.glob("packages/*/tests")):
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                self.paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.names = {path: name for name, path in self.paths.items()}
        self.trees = {name: ast.parse(path.read_text("utf-8")) for name, path in self.paths.items()}

    @cached_property
    def needs(self) -> dict[str, set[str]]:
        """Which modules each module needs at once."""
        return {name: set(self._needed(name)) - {name, "recsmith"} for name in self.paths}

    @cached_property
    def passed_on(self) -> dict[str, dict[str, tuple[str, str]]]:
        """The names that each package imports: from where, and what they are called there."""
        return {
            name: {each.asname or each.name: (node.module, each.name) for node in ast.walk(self.trees[name])
                   if isinstance(node, ast.ImportFrom) and node.module for each in node.names}
            for name, path in self.paths.items() if path.name == "__init__.py"
        }  # fmt: skip

    def home(self, module: str, name: str) -> str:
        """The module that defines a name which can be imported from a module."""
        inner = f"{module}.{name}"
        if inner in self.paths:
            return inner
        source = self.passed_on.get(module, {}).get(name)
        return module if source is None or source[0] not in self.paths else self.home(*source)

    def _needed(self, name: str) -> Iterator[str]:
        """Imports, what is named in texts, and what is run before: packages, and conftest.py of tests."""
        nodes, package = list(ast.walk(self.trees[name])), self.paths[name].name == "__init__.py"
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names if each.name in self.paths)
            elif isinstance(node, ast.ImportFrom) and node.module in self.paths:
                own = (each.name for each in node.names if not package or (each.asname or each.name) in used)
                yield from (self.home(node.module, each) for each in own)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "recsmith":
                yield self.home("recsmith", node.attr)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                yield from self._below(str(node.values[0].value))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (":" in node.value or not package):
                yield from self._named(node.value)
        parts = name.split(".")
        around = [".".join(parts[:i]) for i in range(1, len(parts))]
        yield from (each for up in around for each in (up, f"{up}.conftest") if each in self.paths)

    def _named(self, text: str) -> Iterator[str]:
        """The module of 'module:Class' or 'module'; the command line for 'recsmith'; imports of a program."""
        if text == "recsmith":
            yield "recsmith.cli"
        elif (module := text.partition(":")[0]) in self.paths:
            yield module
        for module, names in re.findall(r"^from ([\w.]+) import ([\w, ]+)", text, re.M):
            yield from (self.home(module, each.strip()) for each in names.split(",") if module in self.paths)

    def _below(self, start: str) -> Iterator[str]:
        """Modules whose names begin so: one of them is found by its name."""
        if start.startswith("recsmith.") and start.endswith("."):
            yield from (each for each in self.paths if each.startswith(start))

    def of_file(self, file: str) -> set[str]:
        """The modules that a changed file is, or is data or C of; a package stands for all that is in it."""
        path = self.root / file
        name = self.names.get(path, "")
        if name and path.name != "__init__.py":
            return {name}
        if not file.startswith(("src/recsmith/", "tests/", "packages/")):
            return set()
        beside = next(up for up in path.parents if any(each.is_relative_to(up) for each in self.names))
        return {each for place, each in self.names.items() if place.is_relative_to(beside)}


def affected(changed: Iterable[str], modules: Modules) -> list[str]:
    """Files of tests, from the project's root, that a change of these files can affect."""
    changed = set(changed)
    tests = {name: path for name, path in modules.paths.items() if path.name.startswith("test_")}
    texts = {name: path.read_text("utf-8") for name, path in tests.items()}
    touched = {name for file in changed for name in modules.of_file(file)}
    found = set(tests) if any(FOR_ALL.fullmatch(file) for file in changed) else set[str]()
    found |= {name for name in tests if name in touched or reach(modules.needs, name) & touched}
    for file in changed:
        if DOCS.match(file):
            found |= {name for name in tests if name.startswith("docs.")}
        if not file.startswith(("src/", "tests/", "packages/", "docs/")):
            named = re.compile(rf"\b{re.escape(Path(file).stem)}\b")
            found |= {name for name, text in texts.items() if named.search(text)}
        if file.startswith("web/"):
            found |= {name for name in tests if name.startswith("web.")}
    return sorted(str(tests[name].relative_to(modules.root)) for name in found)


def changed_since(revision: str) -> set[str]:
    """Files that differ from where this branch left a revision, those that are not in git yet among them."""
    asked = [["diff", "--name-only", "--merge-base", revision], ["ls-files", "--others", "--exclude-standard"]]
    said = [subprocess.run(["git", *each], cwd=ROOT, capture_output=True, text=True, check=True) for each in asked]
    return {line for done in said for line in done.stdout.splitlines()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="main", metavar="REVISION")
    sys.stdout.writelines(f"{each}\n" for each in affected(changed_since(parser.parse_args().since), Modules()))


if __name__ == "__main__":
    main()
