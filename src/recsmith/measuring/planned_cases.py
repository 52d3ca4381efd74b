"""The cases of planned tasks: groups of tables as a search really puts them on ranks.

A cost model is evaluated on the plans that a search tries, and a search goes where the model is cheapest: it finds the
places where the model is wrong. Samples that are drawn at random hardly contain such cases. So a model is trained,
tasks are planned under it, the groups of their ranks are measured, and the model is trained again with these as well.

A task is 10 to 60 tables of the shared pool, each at most once, on 4 or 8 devices, with the pool's dims or, every
second time, with powers of two from 4 to 128. A case depends on the seed, its number and the cost model.

Legend: N tables of a task.
"""

import os
import warnings
from collections.abc import Generator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import field, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import TypeVar

import numpy as np

from recsmith._types import record
from recsmith.clusters import load_cluster
from recsmith.costs import CostModel
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.hardware import Case, CaseScale
from recsmith.hardware.case import PLANS, KeyedRandom
from recsmith.hardware.loads import loads_of
from recsmith.measuring.cases import DATA_TYPES
from recsmith.planning import plan
from recsmith.problems import Space
from recsmith.workloads import Workload
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import CPU_OPTIMIZERS, OptimizerName
from recsmith.workloads.sample import shared_pool

A_TASK = 8  # cases taken from a task: trade-off, more need less planning and are more alike
LEAST_TABLES, MOST_TABLES, DEVICES = 10, 60, (4, 8)  # tables and devices of a task, as in the NeuroShard paper
GLOBAL_BATCH = (2**13, 2**17)  # samples of all devices: the paper's 65,536, and some octaves around it
WIDTHS = (4, 8, 16, 32, 64, 128)  # dims of every second task, those of the paper
ATTEMPTS = 100  # most tasks drawn for a place, until one has a plan with enough groups that fit the scale
SPACE = Space(types=("table_wise", "column_wise", "row_wise"), kernels=("fused",))
AHEAD = 3  # tasks that are planned ahead per process: more would be wasted when the time is up
CACHED_TASKS = 4096  # tasks whose groups are kept: samples return to a task, and planning takes seconds

Choice = TypeVar("Choice")


@record
class PlannedCases:
    """All cases of a seed at a scale: groups of ranks in plans under a cost model, for a device of the catalogue."""

    seed: int
    scale: CaseScale
    device: str
    model: CostModel
    optimizers: tuple[OptimizerName, ...] = CPU_OPTIMIZERS
    data_types: tuple[DataType, ...] = DATA_TYPES

    @property
    def planned(self) -> str:
        """The cost model's name."""
        return self.model.name

    def case(self, number: int) -> Case:
        """The case with this number: one of the groups of a task; A_TASK numbers in a row share a task."""
        task, place = divmod(number, A_TASK)
        return replace(_groups(self, task)[place], seed=self.seed, number=number)


@record
class PlannedAhead:
    """The same cases, whose tasks other processes plan ahead of their use, so that a GPU hardly waits.

    ahead: tasks that are planned beyond the one that is measured. plans: the requested plans, by number of the task.
    """

    seed: int
    scale: CaseScale
    optimizers: tuple[OptimizerName, ...]
    data_types: tuple[DataType, ...]
    planned: str
    cases: PlannedCases
    pool: ProcessPoolExecutor
    ahead: int
    plans: dict[int, Future[list[Case]]] = field(default_factory=dict[int, Future[list[Case]]], compare=False)

    def case(self, number: int) -> Case:
        """The case with this number."""
        task, place = divmod(number, A_TASK)
        for each in range(task, task + self.ahead):
            if each not in self.plans:
                self.plans[each] = self.pool.submit(_groups, self.cases, each)
        return replace(self.plans[task].result()[place], seed=self.seed, number=number)


@contextmanager
def planned_ahead(cases: PlannedCases) -> Generator[PlannedAhead]:
    """The cases, planned ahead on all cores but one while the block runs."""
    workers = max(1, (os.cpu_count() or 1) - 1)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))  # a fork could not use the GPU's libraries
    try:
        yield PlannedAhead(
            seed=cases.seed, scale=cases.scale, optimizers=cases.optimizers, data_types=cases.data_types,
            planned=cases.planned, cases=cases, pool=pool, ahead=AHEAD * workers,
        )  # fmt: skip
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@lru_cache(CACHED_TASKS)
def _groups(cases: PlannedCases, task: int) -> list[Case]:
    """A_TASK different groups of a task's plan: the first drawn task that has enough within the scale."""
    for attempt in range(ATTEMPTS):
        draws = KeyedRandom(cases.seed, task * ATTEMPTS + attempt, PLANS)
        devices = int(_one(draws, DEVICES))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of models beyond their range: such cases are wanted here
                found = plan(_workload(cases, draws, devices), f"{cases.device}:{devices}", cost_model=cases.model,
                             space=SPACE)  # fmt: skip
        except (Infeasible, NoPlanFound):
            continue
        groups = {replace(case, number=0): None for load in loads_of(found.plan) for case in load if case.blocks == 1}
        fitting = [case for case in groups if _fits(case, cases.scale)]
        if len(fitting) >= A_TASK:
            order = np.argsort(draws.uniform(len(fitting)), kind="stable")[:A_TASK]
            return [fitting[i] for i in order.tolist()]
    raise UsageError(
        f"none of {ATTEMPTS} tasks has {A_TASK} groups of tables within scale {cases.scale.name}; take a larger scale"
    )


def _workload(cases: PlannedCases, draws: KeyedRandom, devices: int) -> Workload:
    """A task's tables, batch and optimizer."""
    pool = shared_pool()
    optimizer, data_type = _one(draws, cases.optimizers), _one(draws, cases.data_types)
    count = LEAST_TABLES + int(draws.uniform(1)[0] * (MOST_TABLES + 1 - LEAST_TABLES))
    batch = int(draws.between(*GLOBAL_BATCH, 1)[0]) // devices
    chosen = np.sort(np.argsort(draws.uniform(len(pool.tables)), kind="stable")[:count])
    places: list[int] = chosen.tolist()
    tables = [replace(pool.tables[i], data_type=data_type) for i in places]
    if draws.uniform(1)[0] < 0.5:
        tables = [replace(table, embedding_dim=_one(draws, WIDTHS)) for table in tables]
    return replace(pool, tables=tuple(tables), batch_size=batch, optimizer=optimizer)


def _one(draws: KeyedRandom, choices: tuple[Choice, ...]) -> Choice:
    """One of some choices, each with the same chance."""
    return choices[int(draws.uniform(1)[0] * len(choices))]


def _fits(case: Case, scale: CaseScale) -> bool:
    try:
        case.check(scale)
    except UsageError:
        return False
    return True


def device_of(hardware: str) -> str:
    """The catalogue's device for which a hardware's plans are made; UsageError if its name does not say which."""
    kind, _, source = hardware.partition("?")[0].partition(":")
    name = source or kind
    if name == "cuda":
        raise UsageError("plans are made for a device of the catalogue; name the GPU, such as cuda:h200")
    return load_cluster(name).device.name
