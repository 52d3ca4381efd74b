"""What-ifs: a graph whose links, kernels or overheads are faster or slower.

link=2x             links twice as fast: what a collective takes beyond its latency is halved
kernel:gemm=0.5x    products take half their time; kernel=0.5x: all kernels
comm:all_reduce=2x  all-reduces take twice their time
overhead=0          no overheads; overhead:T1=0.5x: half of T1
"""

import re
from collections.abc import Callable
from dataclasses import replace

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.prediction.graph import Collective, Event, Graph, Kind
from recsmith.prediction.operators import KINDS
from recsmith.prediction.overheads import TERMS, is_overhead

EXAMPLE = "write for example link=2x,kernel:gemm=0.5x,overhead=0"
LARGEST = 1e6  # factor; larger ones are taken for mistakes
_FACTOR = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)x|0")


@noun
class WhatIf:
    """One change. of: link, kernel, comm or overhead; name: which of them ('' for all); factor: of speed or time."""

    of: str
    name: str = ""
    factor: float


def parse_what_ifs(text: str) -> tuple[WhatIf, ...]:
    """The changes of words such as 'link=2x,overhead=0'.

    Raises:
        UsageError: a word that names nothing, or a factor that is none; a link of no speed.
    """
    made = tuple(_parsed(word.strip()) for word in text.split(",") if word.strip())
    twins = [(each.of, each.name) for each in made]
    twin = next((key for key in twins if twins.count(key) > 1), None)
    if twin is not None:
        raise UsageError(f"--what-if changes '{':'.join(filter(None, twin))}' twice; give each change once")
    if not made:
        raise UsageError(f"--what-if is empty; {EXAMPLE}")
    return made


def _parsed(word: str) -> WhatIf:
    key, _, value = word.partition("=")
    of, _, name = key.partition(":")
    known = {"link": (), "kernel": KINDS, "comm": None, "overhead": TERMS}
    if of not in known:
        raise UsageError(f"--what-if '{word[:60]}' changes nothing that is known ({', '.join(known)}); {EXAMPLE}")
    names = known[of]
    if name and names is not None and name not in names:
        raise UsageError(f"--what-if '{word[:60]}': known of {of} are {', '.join(names) or 'no names'}; {EXAMPLE}")
    match = _FACTOR.fullmatch(value)
    if match is None:
        raise UsageError(f"--what-if '{word[:60]}' has no factor such as 2x or 0.5x, or 0; {EXAMPLE}")
    factor = float(match[1] or 0)
    if factor > LARGEST or (of == "link" and factor == 0):
        raise UsageError(
            f"--what-if '{word[:60]}': a factor is at most {LARGEST:g}, and a link's is above 0; {EXAMPLE}"
        )
    return WhatIf(of=of, name=name, factor=factor)


Latency = Callable[[Collective], float]  # seconds of a collective that no link makes shorter


def apply_what_ifs(graph: Graph, what_ifs: tuple[WhatIf, ...], latency: Latency) -> Graph:
    """The graph after all changes."""
    for what_if in what_ifs:
        tapes = tuple(tuple(_event(event, what_if) for event in tape) for tape in graph.ranks)
        meetings = tuple(_collective(each, what_if, latency) for each in graph.collectives)
        graph = replace(graph, ranks=tapes, collectives=meetings)
    return graph


def _event(event: Event, what_if: WhatIf) -> Event:
    if what_if.of == "overhead" and is_overhead(event) and what_if.name in ("", event.term):
        return event._replace(seconds=event.seconds * what_if.factor)
    if what_if.of == "kernel" and event.kind in (Kind.RUN, Kind.LAUNCH) and what_if.name in ("", event.term):
        if event.kind == Kind.RUN:
            return event._replace(seconds=event.seconds * what_if.factor)
        return event._replace(work_s=event.work_s * what_if.factor)
    return event


def _collective(made: Collective, what_if: WhatIf, latency: Latency) -> Collective:
    if what_if.of == "comm" and what_if.name in ("", made.name):
        return replace(made, seconds=made.seconds * what_if.factor)
    if what_if.of == "link":
        fixed = min(made.seconds, latency(made))
        return replace(made, seconds=fixed + (made.seconds - fixed) / what_if.factor)
    return made
