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


def launch(
    begin: float, number: int, name: str = "cudaLaunchKernel", tid: int = 1, seconds: float = 0.1
) -> dict[str, Any]:
    """A call of CUDA's runtime on a thread of the host."""
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "tid": tid, "ts": begin * MS, "dur": seconds * MS,
            "args": {"cbid": 211, "correlation": number, "External id": number}}  # fmt: skip


def kernel(begin: float, seconds: float, number: int, name: str, stream: int = 7) -> dict[str, Any]:
    """A kernel on a stream of the device."""
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": begin * MS, "dur": seconds * MS,
            "args": {"device": 0, "context": 1, "stream": stream, "correlation": number}}  # fmt: skip


def a_device_step(begin: float, comm: float = 6.0) -> list[dict[str, Any]]:
    """A step of a GPU job: a product of 3 ms on stream 7, one of 2 ms that backward launches from a thread of its own,
    an all-reduce on stream 20, an addition of 1 ms that uses it, and the end of the step, which waits for the device.

    Host: 0 linear[0.1 addmm[0.2 launch]] 0.5, 1.0 backward[1.1 mm[1.2 launch]] 1.5, 2.0 allreduce[2.1 launch] 2.5,
    3.0 add_[3.1 launch] 3.5, 4.0 synchronise. Kernels: 0.3 to 3.3, to 5.3, NCCL to 5.3 + comm, 1 ms more.
    """
    record, first = int(begin) * 10 + 10, int(begin) * 100
    ended = begin + 0.3 + 3 + 0.001 + 2 + comm + 1
    add = operator("aten::add_", begin + 3.0, 0.5, record + 3, [[256], [256]])
    backward = operator("autograd::engine::evaluate_function: AddmmBackward0", begin + 1.0, 0.5, record + 4)
    product = operator("aten::mm", begin + 1.1, 0.3, record + 5, [[64, 32], [32, 16]])
    for each in (backward, product):
        each["tid"] = 2
    return [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{int(begin)}", "tid": 1, "ts": begin * MS,
         "dur": (ended - begin) * MS},
        operator("aten::linear", begin, 0.5, record, [[64, 32], [16, 32], [16]]),
        operator("aten::addmm", begin + 0.1, 0.3, record + 1, [[16], [64, 32], [32, 16]]),
        launch(begin + 0.2, first + 1), kernel(begin + 0.3, 3.0, first + 1, "ampere_sgemm_64x32_sliced1x4_nn"),
        backward, product, launch(begin + 1.2, first + 2, tid=2),
        kernel(begin + 3.4, 2.0, first + 2, "ampere_sgemm_nt"),
        operator("c10d::allreduce_", begin + 2.0, 0.5, record + 2, [[[256]]]),
        launch(begin + 2.1, first + 3),
        kernel(begin + 5.4, comm, first + 3, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20),
        add, launch(begin + 3.1, first + 4), kernel(ended - 1, 1.0, first + 4, "vectorized_elementwise_kernel"),
        launch(begin + 4.0, first + 5, "cudaDeviceSynchronize", seconds=ended - begin - 4.0),
    ]  # fmt: skip


def write_device_capture(folder: Path, comms: list[float], steps: int = 3) -> Path:
    """A whole capture of a GPU job, whose ranks see the all-reduce take so long."""
    write_capture(folder, [0.0] * len(comms), steps)
    for rank, comm in enumerate(comms):
        events = [event for i in range(1 + steps) for event in a_device_step(40.0 * i, comm)]
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": len(comms)}, "traceEvents": events}
        (folder / f"rank-{rank}.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    return folder
