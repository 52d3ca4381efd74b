"""One search in a process of its own: reads its problem as one line of JSON, and tells of it in lines of JSON.

    {"kind": "bound", "elapsed_s": 0.2, "bound_s": 0.0011}
    {"kind": "improved", "elapsed_s": 0.3, "total_s": 0.0013}
    {"kind": "done", "plan": {...}, "elapsed_s": 1.2, "iterations": 37, "truncated": false, "notes": []}
    {"kind": "failed", "error": "...", "exit_code": 3}

Given {"advised": plan} it tells what pays beside that plan, in one line.

SIGINT ends the search with its best plan, as Ctrl-C does on the command line; the end of its standard input, which is
the end of the server, ends it at once. Anything that is printed on the way goes to standard error.

Problems without a plan are told in the words of the page: what is too small, and changes that are buttons there. A
change is offered only where the planner has found a plan with it.
"""

import json
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from recsmith.analyses.table_switches import advise_plan
from recsmith.bounds import first_bound
from recsmith.clusters import Cluster, cluster_from_raw
from recsmith.costs import Evaluator
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import NoPlanFound, RecSmithError
from recsmith.files import Raw, encode
from recsmith.planning.plan import plan_with
from recsmith.planning.result import SearchOptions
from recsmith.plans import plan_to_raw
from recsmith.plans.files import plan_from_raw
from recsmith.problems import Space, constraints_from_raw
from recsmith.reports.advice import told_advice
from recsmith.sharding import UVM_CACHING
from recsmith.units import counted, parse_size
from recsmith.web.serving.answers import Fix
from recsmith.web.serving.edits import ProblemChanges
from recsmith.workloads import workload_from_raw

CHECKED = re.compile(r" ?(Proved\. )?(Checked to work: .*|No single change that was tried is enough)\.?$", re.DOTALL)


def _devices(hosts: int, local: int) -> Fix:
    return Fix(text=counted(hosts * local, "device"), changes=ProblemChanges(hosts=hosts, local_world_size=local))


def _host_memory(space: Space) -> Fix:
    return Fix(text="allow host memory", space=replace(space, kernels=(*space.kernels, UVM_CACHING.name)))


def explained(error: RecSmithError, cluster: Cluster, space: Space) -> tuple[str, list[dict[str, object]]]:
    """The sentence of an error without the command line's options, and what it says would help, for buttons."""
    fixes = _fixes_in(str(error), cluster, space)
    said = CHECKED.sub("", str(error)) if fixes else str(error)
    return said, [encode(fix) for fix in fixes]


def _fixes_in(message: str, cluster: Cluster, space: Space) -> list[Fix]:
    """Changes that were checked to work, as the sentence names them for the command line."""
    found: list[Fix] = []
    if size := re.search(r"--hbm (\S+?)GiB", message):
        capacity = parse_size(f"{size[1]}GiB")
        found.append(Fix(text=f"{size[1]} GiB of memory a device", changes=ProblemChanges(hbm_bytes=capacity)))
    if "--reserve 0" in message:
        found.append(Fix(text="keep nothing free for other layers", changes=ProblemChanges(reserve_bytes=0)))
    if samples := re.search(r"--batch-size (\d+)", message):
        changes = ProblemChanges(batch_size=int(samples[1]))
        found.append(Fix(text=f"{int(samples[1]):,} samples a device", changes=changes))
    if hosts := re.search(r"\d[\d,]* devices? \((\d[\d,]*) hosts?\)", message):
        found.append(_devices(int(hosts[1].replace(",", "")), cluster.local_world_size))
    if f"--kernels {','.join(space.kernels)},{UVM_CACHING.name}" in message:
        found.append(_host_memory(space))
    if types := re.search(r"--types (\S+) --widths any", message):
        wide = replace(space, types=tuple(types[1].split(",")), widths="any")
        found.append(Fix(text="allow more sharding types", space=wide))
    return found


EVERY_S = 0.1  # seconds between two improvements that are told

Tell = Callable[[Raw], None]


def search(raw: Raw, tell: Tell) -> Raw:
    """The last event of a search, which is told of as it goes."""
    begun, told, bound_told = time.monotonic(), 0.0, False

    def on_improve(total_s: float) -> None:
        nonlocal told
        if time.monotonic() - told >= EVERY_S:
            told = time.monotonic()
            tell({"kind": "improved", "elapsed_s": told - begun, "total_s": total_s})

    def hear_problem(evaluator: Evaluator) -> None:
        nonlocal bound_told
        if not bound_told:  # of several problems, the first
            bound_told = True
            bound_s = first_bound(evaluator).bound.value_s
            if bound_s is not None:
                bound_s += sequence_seconds(workload, cluster)
            if workload.index_dedup == "auto":  # one of two problems, and the other's plans may be faster
                bound_s = None
            tell({"kind": "bound", "elapsed_s": time.monotonic() - begun, "bound_s": bound_s})

    workload = workload_from_raw(raw["workload"], "the workload")
    cluster = cluster_from_raw(raw["cluster"], "the cluster")
    space, constraints = constraints_from_raw(raw["constraints"], "the constraints")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = SearchOptions(
            cost_model=raw["cost_model"], seed=raw["seed"], iterations=raw["iterations"],
            time_limit_s=raw["time_limit_s"], space=space,
        )  # fmt: skip
        result = plan_with(
            options, workload, cluster, planner=raw["planner"], constraints=constraints,
            start=plan_from_raw(raw["start"], "the plan") if raw["start"] else None, on_improve=on_improve,
            on_problem=hear_problem,
        )  # fmt: skip
    return {
        "kind": "done", "elapsed_s": result.elapsed_s, "iterations": result.iterations, "truncated": result.truncated,
        "notes": [*result.left_out, *dict.fromkeys(str(each.message) for each in caught)],
        "plan": plan_to_raw(result.plan),
    }  # fmt: skip


def run(raw: Raw, tell: Tell) -> None:
    """Search, and tell how it ends: with a plan, or with the sentence that says why there is none."""
    try:
        tell(search(raw, tell))
    except RecSmithError as error:
        cluster, (space, _) = (
            cluster_from_raw(raw["cluster"], "the cluster"),
            constraints_from_raw(raw["constraints"], "it"),
        )
        said, fixes = explained(error, cluster, space)
        tell({"kind": "failed", "error": said, "exit_code": error.exit_code, "fixes": fixes})
    except KeyboardInterrupt:
        sentence = "stopped before a plan was found"
        tell({"kind": "failed", "error": sentence, "exit_code": NoPlanFound.exit_code})
    except MemoryError:
        sentence = "out of memory in the search; allow fewer sharding types, or TorchRec's widths alone"
        tell({"kind": "failed", "error": sentence, "exit_code": 1})


def advise(raw: Raw, tell: Tell) -> None:
    """Tell what pays beside a plan: {"kind": "advised", "advice": {...}}, or that it failed."""
    try:
        advice = advise_plan(plan_from_raw(raw["advised"], "the plan"))
        tell({"kind": "advised", "advice": encode(told_advice(advice))})
    except RecSmithError as error:
        tell({"kind": "failed", "error": str(error)})
    except MemoryError:
        tell({"kind": "failed", "error": "out of memory while changes were priced; ask on the command line"})


def main() -> None:
    """Wait for a problem, search, and end."""
    signal.signal(signal.SIGINT, _interrupt_once)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that no stray word stands between the events

    def tell(event: Raw) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    try:
        line = sys.stdin.buffer.readline()
        if line.endswith(b"\n"):  # else the server has ended
            threading.Thread(target=_end_with_the_server, daemon=True).start()
            raw = json.loads(line)
            (advise if "advised" in raw else run)(raw, tell)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    os._exit(0)  # the reader of standard input would hold up an orderly end


def _interrupt_once(number: int, _: FrameType | None) -> None:
    """End the search with its best plan; a second interrupt would end it without."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_the_server() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
