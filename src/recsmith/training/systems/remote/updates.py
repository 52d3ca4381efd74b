"""The shards of tables that a server holds, and how summed gradients update their rows.

n rows of a shard that a step looks up, w columns of a shard

SGD: row -= rate * gradient. Adagrad (Duchi et al., JMLR 2011): state += gradient^2. Row-wise Adagrad keeps one number
a row, to which the mean of gradient^2 over its columns is added. Both: row -= rate * gradient / (sqrt(state) + eps), as
in FBGEMM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from recsmith.plans import Plan
from recsmith.sharding import Shard
from recsmith.training.job.sharded import ShardedJob, table_of


def shard_key(shard: Shard) -> str:
    """The name of a shard in messages: its table, first row and first column."""
    return f"{shard.table}/{shard.rows[0]}/{shard.columns[0]}"


def shards_by_table(plan: Plan) -> dict[str, list[Shard]]:
    """The shards of each table; the rank of a shard is its server."""
    found: dict[str, list[Shard]] = {table.name: [] for table in plan.workload.tables}
    for shard in plan.shards():
        found[shard.table].append(shard)
    return found


@dataclass
class HeldShard:
    """A shard's weights (rows, w), and the state of its optimizer: none, (rows,) or (rows, w)."""

    weights: torch.Tensor
    state: torch.Tensor | None = None

    def update(self, ids: torch.Tensor, gradients: torch.Tensor, rate: float, eps: float) -> None:
        """Update the rows of ids (n,), which are distinct, by their gradients (n, w)."""
        if self.state is None:
            _add_rows(self.weights, ids, gradients, -rate)
            return
        by_row = self.state.dim() == 1
        now = _add_rows(self.state, ids, gradients.pow(2).mean(1) if by_row else gradients.pow(2))
        root = now.sqrt().add_(eps)
        _add_rows(self.weights, ids, gradients / (root[:, None] if by_row else root), -rate)


def merged(parts: Sequence[tuple[torch.Tensor, torch.Tensor]], share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, gradients) of several trainers as one pair: distinct ids, and the sum of their gradients times a share."""
    if len(parts) == 1:
        ids, gradients = parts[0]
        return ids, gradients * share
    ids, place = torch.cat([ids for ids, _ in parts]).unique(return_inverse=True)
    total = torch.zeros(len(ids), parts[0][1].shape[1])
    return ids, total.index_add_(0, place, torch.cat([each for _, each in parts])).mul_(share)


def _add_rows(to: torch.Tensor, ids: torch.Tensor, values: torch.Tensor, times: float = 1.0) -> torch.Tensor:
    """Add values to rows of distinct ids; returns the new rows. On large tables index_add_ takes 3 times as long."""
    rows = to.index_select(0, ids).add_(values, alpha=times)
    to.index_copy_(0, ids, rows)
    return rows


def held_shards(job: ShardedJob) -> dict[str, HeldShard]:
    """The shards of this rank, by their names in messages (`shard_key`)."""
    state = job.rows.state_dict()
    momenta: dict[str, Any] = {}
    for name, kept in state.get("optimizer", {}).get("sparse", {}).get("state", {}).items():
        if table_of(name):
            momenta[name] = next((each for key, each in kept.items() if key.endswith("momentum1")), None)
    found: dict[str, HeldShard] = {}
    for name, weights in state["model"].items():
        table = table_of(name)
        if table is None:
            continue
        locals_ = weights.local_shards()
        states = momenta[name].local_shards() if momenta.get(name) is not None else [None] * len(locals_)
        for each, kept in zip(locals_, states, strict=True):
            row, column = each.metadata.shard_offsets
            found[f"{table}/{row}/{column}"] = HeldShard(each.tensor, None if kept is None else kept.tensor)
    return found
