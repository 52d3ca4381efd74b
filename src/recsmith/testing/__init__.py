"""Contract tests for components of your own: subclass one, set your object, and run pytest.

    from recsmith.testing import PlannerContract

    class TestMine(PlannerContract):
        planner = MyPlanner()

pytest is not imported here: any runner works that calls methods named test_* and passes an empty folder to those with
an argument `tmp_path`. Contracts of training components import torch, so they are loaded when they are first accessed.
"""

from typing import TYPE_CHECKING

from recsmith._late import late_names
from recsmith.testing.cost_models import CostModelContract
from recsmith.testing.planners import PlannerCase, PlannerContract
from recsmith.testing.problems import sample_problems

if TYPE_CHECKING:
    from recsmith.testing.collectives import CollectiveContract
    from recsmith.testing.optimizers import DenseOptimizerContract
    from recsmith.testing.sources import BatchSourceContract
    from recsmith.testing.steps import StepContract
    from recsmith.testing.stores import RowStoreContract, TrainedStoreContract
    from recsmith.testing.systems import SystemContract, TrainedSystemContract
    from recsmith.testing.tables import TableModuleContract
    from recsmith.testing.watchers import WatcherContract

__getattr__ = late_names(__name__, {
    "recsmith.testing.collectives": ("CollectiveContract",),
    "recsmith.testing.optimizers": ("DenseOptimizerContract",),
    "recsmith.testing.sources": ("BatchSourceContract",),
    "recsmith.testing.steps": ("StepContract",),
    "recsmith.testing.stores": ("RowStoreContract", "TrainedStoreContract"),
    "recsmith.testing.systems": ("SystemContract", "TrainedSystemContract"),
    "recsmith.testing.tables": ("TableModuleContract",),
    "recsmith.testing.watchers": ("WatcherContract",),
})  # fmt: skip

__all__ = [
    "BatchSourceContract", "CollectiveContract", "CostModelContract", "DenseOptimizerContract", "PlannerCase",
    "PlannerContract", "RowStoreContract", "StepContract", "SystemContract", "TableModuleContract",
    "TrainedStoreContract", "TrainedSystemContract", "WatcherContract", "sample_problems",
]  # fmt: skip
