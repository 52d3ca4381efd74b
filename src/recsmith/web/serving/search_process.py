"""One search in its own process: reads its problem as one line of JSON, and writes events as lines of JSON.

    {"kind": "bound", "elapsed_s": 0.2, "bound_s": 0.0011}
    {"kind": "improved", "elapsed_s": 0.3, "total_s": 0.0013}
    {"kind": "done", "plan": {...}, "elapsed_s": 1.2, "iterations": 37, "truncated": false, "notes": []}
    {"kind": "failed", "error": "...", "exit_code": 3}

Given {"advised": plan} it writes which changes of that plan's job pay, in one line.

SIGINT ends the search with its best plan, as Ctrl-C does on the command line; the end of its standard input, which
means that the server has ended, ends it at once. Anything else that is printed goes to standard error.

Errors of problems without a plan are worded for the page: what is too small, and changes that are buttons there. A
change is offered only if the planner has found a plan with it.
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
    """The message of an error without command-line options, and the changes that it names, for buttons."""
    fixes = _fixes_in(str(error), cluster, space)
    said = CHECKED.sub("", str(error)) if fixes else str(error)
    return said, [encode(fix) for fix in fixes]


def _fixes_in(message: str, cluster: Cluster, space: Space) -> list[Fix]:
    """Changes that were checked to work, parsed from the message for the command line."""
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


EVERY_S = 0.1  # seconds between two reported improvements

Tell = Callable[[Raw], None]


def search(raw: Raw, tell: Tell) -> Raw:
    """Run a search and return its last event; earlier events are passed to `tell`."""
    begun, told, bound_told = time.monotonic(), 0.0, False

    def on_improve(total_s: float) -> None:
        nonlocal told
        if time.monotonic() - told >= EVERY_S:
            told = time.monotonic()
            tell({"kind": "improved", "elapsed_s": told - begun, "total_s": total_s})

    def hear_problem(evaluator: Evaluator) -> None:
        nonlocal bound_told
        if not bound_told:  # only the first, if there are several problems
            bound_told = True
            bound_s = first_bound(evaluator).bound.value_s
            if bound_s is not None:
                bound_s += sequence_seconds(workload, cluster)
            if workload.index_dedup == "auto":  # it is one of two problems; plans of the other may be faster
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
    """Search, and report the end: a plan, or a sentence that says why there is none."""
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
    """Report which changes of a plan's job pay: {"kind": "advised", "advice": {...}}, or that it failed."""
    try:
        advice = advise_plan(plan_from_raw(raw["advised"], "the plan"))
        tell({"kind": "advised", "advice": encode(told_advice(advice))})
    except RecSmithError as error:
        tell({"kind": "failed", "error": str(error)})
    except MemoryError:
        tell({"kind": "failed", "error": "out of memory while changes were priced; ask on the command line"})


def main() -> None:
    """Wait for a problem, search, and end the process."""
    signal.signal(signal.SIGINT, _interrupt_once)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that nothing else is printed between the events

    def tell(event: Raw) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    try:
        line = sys.stdin.buffer.readline()
        if line.endswith(b"\n"):  # otherwise the server has ended
            threading.Thread(target=_end_with_the_server, daemon=True).start()
            raw = json.loads(line)
            (advise if "advised" in raw else run)(raw, tell)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    os._exit(0)  # an orderly exit would wait for the thread that reads standard input


def _interrupt_once(number: int, _: FrameType | None) -> None:
    """End the search with its best plan, and ignore further interrupts, which would end it without one."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_the_server() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
