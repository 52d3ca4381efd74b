"""Captures that are written by hand: operators and collectives at given times, as Kineto and its observer write."""

import gzip
import json
from pathlib import Path
from typing import Any

MS = 1000.0  # microseconds, Kineto's unit


def operator(name: str, begin: float, seconds: float, record: int, dims: Any = ()) -> dict[str, Any]:
    """An operator of the host thread; begin in milliseconds."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": begin * MS, "dur": seconds * MS,
            "args": {"Record function id": record, "Input Dims": list(dims), "Input type": ["float"] * len(dims),
                     "Input Strides": [[1] * len(each) for each in dims], "Concrete Inputs": []}}  # fmt: skip


def run(name: str, begin: float, seconds: float, tid: int = 9) -> dict[str, Any]:
    """A collective on a thread of gloo."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "tid": tid, "ts": begin * MS, "dur": seconds * MS}


def a_step(begin: float, late: float = 0.0, comm: float = 4.0) -> list[dict[str, Any]]:
    """A step of 10 ms: a product of 2 ms, an all-reduce that begins `late`, and an addition after it.

    0 T1 1 linear[1.1 addmm 3.1] 3.5 T1 4 allreduce 4.5 ... wait ... add 1 ms.
    """
    record = int(begin) * 10 + 10
    ended = begin + 4.5 + late + comm
    return [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{int(begin)}", "tid": 1, "ts": begin * MS,
         "dur": (4.5 + late + comm + 1.5) * MS},
        operator("aten::linear", begin + 1, 2.5, record, [[64, 32], [16, 32], [16]]),
        operator("aten::addmm", begin + 1.1, 2.0, record + 1, [[16], [64, 32], [32, 16]]),
        operator("c10d::allreduce_", begin + 4, 0.5, record + 2, [[[256]]]),
        run("gloo:all_reduce", begin + 4.5 + late, comm),
        operator("aten::add_", ended + 0.2, 1.0, record + 3, [[256], [256]]),
    ]  # fmt: skip


def a_graph(begin: float) -> dict[str, Any]:
    """The execution graph of a step: add_ uses what the all-reduce writes."""
    record = int(begin) * 10 + 10

    def node(number: int, name: str, storages: list[int], outer: int = 1) -> dict[str, Any]:
        values = [[1, storage, 0, 256, 4, "cpu"] for storage in storages]
        return {"id": number, "name": name, "ctrl_deps": outer, "inputs": {"values": values},
                "attrs": [{"name": "rf_id", "value": record + number - 100}]}  # fmt: skip

    nodes = [node(100, "aten::linear", [1]), node(101, "aten::addmm", [1], 100), node(102, "c10d::allreduce_", [7]),
             node(103, "aten::add_", [7])]  # fmt: skip
    nodes[2]["inputs"]["values"] = [nodes[2]["inputs"]["values"]]  # a list of tensors
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}


def write_capture(folder: Path, lates: list[float], steps: int = 3) -> Path:
    """A whole capture of ranks whose all-reduce runs so much later than their host asks for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, late in enumerate(lates):
        comm = 4.0 - (late - max(lates))  # all end together
        events = [event for i in range(1 + steps) for event in a_step(20.0 * i, late, comm)]
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": len(lates)}, "traceEvents": events}
        (folder / f"rank-{rank}.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
        (folder / f"rank-{rank}.graph.json").write_text(json.dumps(a_graph(0.0)))
        about = {"schema": "recsmith/capture/1", "rank": rank, "ranks": len(lates), "steps": steps,
                 "plain_step_s": 0.01, "event_s": 0.0, "annotation_s": 0.0, "torch": "2.13.0",
                 "recsmith": "0"}  # fmt: skip
        (folder / f"rank-{rank}.about.json").write_text(json.dumps(about))
    return folder
