"""Who imports whom in src/recsmith, and how large it is: rooms as a table, circles between modules, and sizes.

python benchmarks/import_graph.py            # the table of docs/architecture.md; what follows from others is left out
python benchmarks/import_graph.py --circles  # modules that import each other, directly or around a corner
python benchmarks/import_graph.py --knots    # files and folders of a room that import each other, around corners too
python benchmarks/import_graph.py --sizes    # lines, imports, closures, small modules, class names, functions

Imports are read from the syntax trees, wherever in a file they stand: within functions too. Those for type checkers
alone (under `if TYPE_CHECKING`) count for the table and for circles. A name that a package shows counts as one of the
module that defines it, too. They do not count for the closure of a module,
which is what a reader may have to open: the module, all that it imports, directly or through others, and the packages
around each.
"""

import argparse
import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src"
BASE = {
    "_compiled",
    "_components",
    "_late",
    "elementary",
    "_install",
    "_random",
    "_plugins",
    "_process",
    "_fields",
    "_types",
    "_version",
    "errors",
    "files",
    "units",
    "__init__",
    "__main__",
}  # imported from everywhere

STARTS = ("recsmith.planning.plan", "recsmith.training.loop", "recsmith.training.rank")  # whose closures are counted
SMALL = 60  # lines up to which a module with one importer might be a part of it
SYSTEMS = "systems"  # a folder of folders, each of them a unit
COMPONENTS = (
    "collectives", "losses", "models", "optimizers", "sources", "steps", "stores", "tables", "watchers",
)  # fmt: skip  # of training
Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = dict[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Files by the dotted names of their modules."""
    found: dict[str, Path] = {}
    for path in sorted((root / "recsmith").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path], *, typing: bool = True) -> Iterator[str]:
    """Modules of the package that a file imports; `from room import name` is `room.name` where that is a module.

    A name that a package only shows is followed to the module that defines it, also where the package loads it late.

    typing: whether imports for type checkers alone count.
    """
    skipped = set[ast.AST]() if typing else set(_for_type_checkers(path))
    for node in nodes(path):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in known else node.module
                yield home(known, node.module, each.name)


def home(known: dict[str, Path], module: str, name: str) -> str:
    """The module that defines a name which can be imported from a module."""
    inner = f"{module}.{name}"
    if inner in known:
        return inner
    source = _shown(known[module]).get(name) if known[module].name == "__init__.py" else None
    return module if source is None or source[0] not in known else home(known, *source)


@cache
def _shown(package: Path) -> dict[str, tuple[str, str]]:
    """The names that a package imports to show them, for type checkers alone too: from where, and their name there."""
    found = [node for node in nodes(package) if isinstance(node, ast.ImportFrom) and node.module]
    return {each.asname or each.name: (str(node.module), each.name) for node in found for each in node.names}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The syntax tree of a file, read once: all of its nodes."""
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


def _for_type_checkers(path: Path) -> Iterator[ast.AST]:
    """All that stands under `if TYPE_CHECKING`."""
    for node in nodes(path):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.body:
                yield from ast.walk(statement)


def module_graph(root: Path, *, typing: bool = True) -> Graph:
    """Modules that each module imports. typing: whether imports for type checkers alone count."""
    known = modules(root)
    return {
        name: {other for other in imported(path, known, typing=typing) if other != name} for name, path in known.items()
    }


def room_graph(graph: Graph) -> Graph:
    """Rooms that each room imports, without those that may be imported from everywhere."""
    rooms: Graph = {}
    for name, others in graph.items():
        room = unit_of(name)[0] or "__init__"
        if room not in BASE:
            targets = {unit_of(other)[0] for other in others if "." in other}
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
    """Sets of two and more nodes that reach each other, and nodes that reach themselves (Kosaraju's algorithm)."""
    importers: Graph = {}
    for name, others in graph.items():
        for other in others:
            importers.setdefault(other, set()).add(name)
    seen, found = set[str](), list[list[str]]()
    for name in reversed(_last_first(graph)):
        together, waiting = list[str](), [name]
        while waiting:
            here = waiting.pop()
            if here not in seen:
                seen.add(here)
                together.append(here)
                waiting += importers.get(here, ())
        if len(together) > 1 or (together and name in graph.get(name, ())):
            found.append(sorted(together))
    return sorted(found)


def _last_first(graph: Graph) -> list[str]:
    """The nodes in the order in which a walk in depth leaves them: each after all that it reaches, but for circles."""
    seen, order = set[str](), list[str]()
    for start in sorted(graph):
        path = [(start, iter(sorted(graph[start])))] if start not in seen else []
        seen.add(start)
        while path:
            name, others = path[-1]
            inner = next((each for each in others if each in graph and each not in seen), None)
            if inner is None:
                order.append(name)
                path.pop()
            else:
                seen.add(inner)
                path.append((inner, iter(sorted(graph[inner]))))
    return order


def unit_graphs(graph: Graph) -> dict[str, Graph]:
    """By room, which of its units import which: a unit is a module of the room, or a folder of it, or a system."""
    rooms: dict[str, Graph] = {}
    for name, others in graph.items():
        room, unit = unit_of(name)
        if not unit:  # a room's own __init__, which shows what is inside
            continue
        units = rooms.setdefault(room, {}).setdefault(unit, set())
        inside = map(unit_of, others)
        units.update(each for there, each in inside if there == room and each not in ("", unit))
    return rooms


def unit_of(name: str) -> tuple[str, str]:
    """The room of a module and its unit there; '' for the room's own __init__. A system's command is of the cli."""
    if name.startswith(f"recsmith.training.{SYSTEMS}.") and name.endswith(".command"):
        return "cli", name
    _, room, unit, folder = [*name.split("."), "", "", ""][:4]
    return room, f"{unit}/{folder}" if unit == SYSTEMS and folder else unit


def knots(graph: Graph) -> dict[str, list[list[str]]]:
    """Sets of units of one room that import each other, around corners too; rooms without any are left out."""
    return {room: found for room, units in sorted(unit_graphs(graph).items()) if (found := circles(units))}


def closure(graph: Graph, start: str) -> set[str]:
    """A module, all that it reaches, and the packages around each, with what these import."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [*graph.get(name, ()), *([name.rpartition(".")[0]] if "." in name else [])]
    return seen


@dataclass(frozen=True)
class Sizes:
    """How large a source tree is. import_share: of its lines. closures: modules of the closure of each of STARTS.

    single: modules of at most SMALL lines with one importer. twins: class names that stand more than once, each with
    its modules. functions: lines of each function, methods included. training: lines of its core (run, seams, job,
    launch, the loop), of the folders of its seams, of what becomes of trained models, and of its systems.
    """

    lines: int
    modules: int
    import_share: float
    closures: dict[str, int]
    single: list[str]
    twins: dict[str, list[str]]
    functions: list[int]
    training: dict[str, int]


def sizes(root: Path) -> Sizes:
    """The sizes of the package below a folder."""
    known = modules(root)
    lines = {name: path.read_text("utf-8").count("\n") for name, path in known.items()}
    found = [(name, node) for name, path in known.items() for node in nodes(path)]
    importers = Counter(other for others in module_graph(root).values() for other in others)
    classes: dict[str, list[str]] = {}
    for name, node in found:
        if isinstance(node, ast.ClassDef):
            classes.setdefault(node.name, []).append(name)
    graph = module_graph(root, typing=False)
    return Sizes(
        lines=sum(lines.values()),
        modules=len(known),
        import_share=sum(_lines(node) for _, node in found if isinstance(node, ast.Import | ast.ImportFrom))
        / sum(lines.values()),
        closures={start: len(closure(graph, start)) for start in STARTS if start in known},
        single=[name for name, path in known.items()
                if importers[name] == 1 and lines[name] <= SMALL and path.name != "__init__.py"],
        twins={name: where for name, where in sorted(classes.items()) if len(where) > 1},
        functions=sorted(_lines(node) for _, node in found if isinstance(node, Function)),
        training=_training(lines),
    )  # fmt: skip


def _training(lines: dict[str, int]) -> dict[str, int]:
    """Lines of training by its parts. lines: of each module."""
    found = Counter[str]()
    for name, count in lines.items():
        room, unit = name.split(".")[1:3] if name.count(".") > 1 else (name.partition(".")[2], "")
        if room == "training":
            part = "components" if unit in COMPONENTS else unit if unit in (SYSTEMS, "results") else "core"
            found[part] += count
    return dict(sorted(found.items()))


def _lines(node: ast.stmt) -> int:
    """Lines of a statement, from its first to its last."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def size_lines(found: Sizes) -> Iterator[str]:
    """The sizes as people read them."""
    yield f"lines              {found.lines:,} in {found.modules} modules"
    yield f"imports            {found.import_share:.2%} of all lines"
    for start, count in found.closures.items():
        yield f"closure            {count} modules, packages counted: {start}"
    yield f"training           {', '.join(f'{part} {count:,}' for part, count in found.training.items())} lines"
    single = ", ".join(found.single) or "none"
    yield f"small, 1 importer  {len(found.single)} modules of at most {SMALL} lines: {single}"
    twins = "; ".join(f"{name} ({', '.join(where)})" for name, where in found.twins.items())
    yield f"class names twice  {len(found.twins)}: {twins or 'none'}"
    tenth = found.functions[int(0.9 * (len(found.functions) - 1))] if found.functions else 0
    median = statistics.median(found.functions) if found.functions else 0
    yield f"functions          {len(found.functions):,}; median {median:g} lines, 90th percentile {tenth}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circles", action="store_true")
    parser.add_argument("--knots", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="the src folder of another checkout")
    options = parser.parse_args()
    if options.sizes:
        print("\n".join(size_lines(sizes(options.root))))
        return
    graph = module_graph(options.root, typing=False)  # what a program imports as it runs
    if options.circles:
        found = circles(graph)
        for circle in found:
            print("circle:", " ".join(circle))
        sys.exit(bool(found))
    if options.knots:
        tied = knots(graph)
        for room, found in tied.items():
            units = unit_graphs(graph)[room]
            for knot in found:
                arrows = sum(len(units[each] & set(knot)) for each in knot)
                print(f"{room}: {len(knot)} of {len(units)} units, {arrows} arrows: {' '.join(knot)}")
        sys.exit(bool(tied))
    rooms = room_graph(graph)
    print("| room | imports directly |\n|---|---|")
    for room, others in sorted(reduced(rooms).items(), key=lambda item: (len(reach(rooms, item[0])), item[0])):
        if others:
            print(f"| `{room}` | {', '.join(f'`{other}`' for other in sorted(others))} |")
    print(f"\n{len(graph)} modules in {len(rooms)} rooms, {sum(map(len, rooms.values()))} arrows between rooms")


if __name__ == "__main__":
    main()
