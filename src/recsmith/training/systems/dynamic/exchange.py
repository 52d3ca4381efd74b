"""Sends ids to the ranks that own their parts, and gets their rows back; with torch.

R ranks, T tables
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from recsmith._types import Ints
from recsmith.training.systems.dynamic.id_rows import IdRows, Taken


def take_all(maps: Sequence[IdRows], ids: Sequence[Ints], step: int | None) -> list[Taken]:
    """The rows of ids in each of T tables; `again` and `missing` are of all ranks. step: None only looks up."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        return _across_ranks(maps, ids, step)
    return [_here(each, of_table, np.ones_like(of_table), step) for each, of_table in zip(maps, ids, strict=True)]


def _here(table: IdRows, ids: Ints, times: Ints, step: int | None) -> Taken:
    if step is None:
        return Taken(table.look_up(ids), (ids[:0], ids[:0]), 0, 0)
    return table.take(ids, times, step)


def _across_ranks(maps: Sequence[IdRows], ids: Sequence[Ints], step: int | None) -> list[Taken]:
    """Send the distinct ids of each table to their owners, each with its number of occurrences; returns their rows."""
    ranks, orders = dist.get_world_size(), list[Ints]()
    asked: list[list[Ints]] = [[] for _ in range(ranks)]
    back: list[Ints] = []
    for table, of_table in zip(maps, ids, strict=True):
        distinct, places, times = np.unique(of_table, return_inverse=True, return_counts=True)
        owners = table.owners(distinct)
        order = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[order], np.arange(1, ranks))
        for mine, some, often in zip(asked, np.split(distinct[order], ends), np.split(times[order], ends), strict=True):
            mine += [some, often]
        back.append(places)
        orders.append(order)
    answers: list[list[Ints]] = [[] for _ in range(ranks)]
    got, known = exchanged(asked), list[int]()
    for t, table in enumerate(maps):
        theirs, often = [each[2 * t] for each in got], [each[2 * t + 1] for each in got]
        taken = _here(table, np.concatenate(theirs), np.concatenate(often), step)
        known.append(taken.known)
        parts = np.split(taken.rows, np.cumsum([len(each) for each in theirs])[:-1])
        for answer, rows in zip(answers, parts, strict=True):
            answer += [rows, *taken.again, np.array([taken.missing])]
    answered = exchanged(answers)
    return [
        _joined([each[4 * t : 4 * t + 4] for each in answered], orders[t], back[t], known[t]) for t in range(len(maps))
    ]


def _joined(answers: Sequence[Sequence[Ints]], order: Ints, places: Ints, known: int) -> Taken:
    """Join the owners' answers for a table. order: in which its distinct ids were sent. places: of each id in these."""
    rows = np.empty(len(order), np.int64)
    rows[order] = np.concatenate([each[0] for each in answers])
    again = np.concatenate([each[1] for each in answers]), np.concatenate([each[2] for each in answers])
    return Taken(rows[places], again, sum(int(each[3][0]) for each in answers), known)


def exchanged(arrays: Sequence[Sequence[Ints]]) -> list[list[Ints]]:
    """All-to-all of equally many arrays for each rank; returns those received. arrays: by receiving rank (R, ...)."""
    lengths = torch.tensor([[len(each) for each in row] for row in arrays])
    theirs = torch.empty_like(lengths)
    dist.all_to_all_single(theirs, lengths)
    sent = torch.from_numpy(np.concatenate([each for row in arrays for each in row]).astype(np.int64, copy=False))
    got = torch.empty(int(theirs.sum()), dtype=torch.int64)
    dist.all_to_all_single(got, sent, theirs.sum(1).tolist(), lengths.sum(1).tolist())
    parts = iter(np.split(got.numpy(), np.cumsum(theirs.flatten().numpy())[:-1]))
    return [[next(parts) for _ in row] for row in arrays]
