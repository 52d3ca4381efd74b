"""Who imports whom in src/recsmith: rooms as a table, and circles between modules, if there are any.

python benchmarks/import_graph.py            # the table of docs/architecture.md; what follows from others is left out
python benchmarks/import_graph.py --circles  # modules that import each other, directly or around a corner

Imports are read from the syntax trees, wherever in a file they stand; those for type checkers alone count too.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src"
BASE = {
    "_install",
    "_printable",
    "_random",
    "_process",
    "_fields",
    "_plugins",
    "_types",
    "_version",
    "errors",
    "files",
    "units",
    "__init__",
    "__main__",
}  # imported from everywhere

Graph = dict[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Files by the dotted names of their modules."""
    found: dict[str, Path] = {}
    for path in sorted((root / "recsmith").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports; `from room import name` is `room.name` where that is a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in known else node.module


def module_graph(root: Path) -> Graph:
    """Modules that each module imports."""
    known = modules(root)
    return {name: {other for other in imported(path, known) if other != name} for name, path in known.items()}


def room_graph(graph: Graph) -> Graph:
    """Rooms that each room imports, without those that may be imported from everywhere."""
    rooms: Graph = {}
    for name, others in graph.items():
        room = name.split(".")[1] if "." in name else "__init__"
        if room not in BASE:
            targets = {other.split(".")[1] for other in others if "." in other}
            rooms.setdefault(room, set()).update(targets - BASE - {room})
    return rooms


def reduced(graph: Graph) -> Graph:
    """The graph without arrows that follow from others; of graphs without circles."""
    return {
        name: {other for other in others if not any(other in reach(graph, via) for via in others - {other})}
        for name, others in graph.items()
    }


def reach(graph: Graph, start: str) -> set[str]:
    """All that can be reached from a node by at least one arrow."""
    seen: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += graph.get(node, ())
    return seen


def circles(graph: Graph) -> list[list[str]]:
    """Sets of nodes that reach each other."""
    reached = {name: reach(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in graph if other in reached[name] and name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return [list(each) for each in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circles", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="the src folder of another checkout")
    words = parser.parse_args()
    graph = module_graph(words.root)
    if words.circles:
        found = circles(graph)
        for circle in found:
            print("circle:", " ".join(circle))
        sys.exit(bool(found))
    rooms = room_graph(graph)
    print("| room | imports directly |\n|---|---|")
    for room, others in sorted(reduced(rooms).items(), key=lambda item: (len(reach(rooms, item[0])), item[0])):
        if others:
            print(f"| `{room}` | {', '.join(f'`{other}`' for other in sorted(others))} |")
    print(f"\n{len(graph)} modules in {len(rooms)} rooms, {sum(map(len, rooms.values()))} arrows between rooms")


if __name__ == "__main__":
    main()
