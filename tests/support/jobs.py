"""What ranks of local jobs run in tests: plain functions that return JSON data."""

import logging
import runpy
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders

from recsmith.errors import RecSmithError
from recsmith.torchrec import RecSmithPlanner

TOO_MANY_ROWS = 10_000_000  # a table of TwoCollections weighs 1.2 GiB: more than a device of 1 GiB


class TwoCollections(nn.Module):
    """Pooled tables that share a feature, weighted ones, and sequences; two tables have one name."""

    def __init__(self, tables: int = 6, rows: int = 1000) -> None:
        super().__init__()
        meta = torch.device("meta")
        bags = [
            EmbeddingBagConfig(name=f"t{i}", embedding_dim=32, num_embeddings=rows, feature_names=["shared", f"f{i}"])
            for i in range(tables)
        ]
        weighted = [EmbeddingBagConfig(name="t0", embedding_dim=16, num_embeddings=64, feature_names=["w"])]
        self.pooled = EmbeddingBagCollection(tables=bags, device=meta)
        self.weighted = EmbeddingBagCollection(tables=weighted, device=meta, is_weighted=True)
        self.sequence = EmbeddingCollection(
            tables=[EmbeddingConfig(name="s", embedding_dim=8, num_embeddings=500, feature_names=["h"])], device=meta
        )


def constraints() -> dict[str, ParameterConstraints]:
    """What is looked up in TwoCollections, and a limit for one table."""
    return {
        "t1": ParameterConstraints(pooling_factors=[3.0, 0.5], num_poolings=[1.0, 2.0]),
        "t2": ParameterConstraints(sharding_types=["row_wise"], pooling_factors=[1.0, 1.0]),
    }


def planner_that_splits(cluster: str) -> RecSmithPlanner:
    """A planner for `TwoCollections(1, TOO_MANY_ROWS)` that must split its largest table by columns."""
    from recsmith import load_cluster

    limits = {"t0": ParameterConstraints(sharding_types=["column_wise"], stochastic_rounding=False)}
    small = load_cluster(cluster).with_memory(2**30)
    return RecSmithPlanner(small, constraints=limits, optimizer="EXACT_ROWWISE_ADAGRAD", planner="cost_greedy")


def carried_and_warned() -> dict[str, Any]:
    """What collective_plan writes of a carried field, warns of, and logs, for a table split by columns."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("recsmith").addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = TwoCollections(1, TOO_MANY_ROWS)
        plan = planner_that_splits("cpu:2").collective_plan(model, get_default_sharders())
    rounding = plan.plan["pooled"]["t0"].stochastic_rounding  # type: ignore[index]
    return {"rounding": rounding, "warned": [str(warning.message) for warning in caught], "logged": logged}


def collectives(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `collective` says of several cases, one after the other in one job; last, `carried_and_warned`."""
    return [*(collective(**case) for case in cases), carried_and_warned()]


def collective(
    rows_of_rank_1: int = 1000, hbm: int | None = None, cluster: str = "cpu:2", virtual_of_rank_1: bool = False
) -> dict[str, Any]:
    """collective_plan on every rank: the placements it got, or the error that it raised."""
    from recsmith import load_cluster

    rows = rows_of_rank_1 if dist.get_rank() == 1 else 1000
    model = TwoCollections(rows=rows)
    limits = constraints() | {"t3": ParameterConstraints(use_virtual_table=virtual_of_rank_1 and dist.get_rank() == 1)}
    planner = RecSmithPlanner(load_cluster(cluster).with_memory(hbm), batch_size=16, constraints=limits)
    try:
        plan = planner.collective_plan(model, get_default_sharders())
    except RecSmithError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {
        path: {name: [parameter.sharding_type, parameter.ranks] for name, parameter in module.items()}  # type: ignore[attr-defined]
        for path, module in plan.plan.items()
    }


def said_by(script: str) -> str:
    """What a script for torchrun prints on this rank, which has joined its job and leaves it later."""
    here = patch.object(sys, "argv", [script]), patch.object(dist, "init_process_group")
    with here[0], here[1], patch("recsmith.torchrec.leave"), redirect_stdout(StringIO()) as said:
        runpy.run_path(script, run_name="__main__")
    return said.getvalue()
