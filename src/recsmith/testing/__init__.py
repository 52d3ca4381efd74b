"""Contract tests for planners and cost models of your own: subclass one, name your object, and run pytest.

    from recsmith.testing import PlannerContract

    class TestMine(PlannerContract):
        planner = MyPlanner()

pytest is not imported here; any runner that calls methods named test_* will do.
"""

from recsmith.testing.cost_models import CostModelContract
from recsmith.testing.planners import PlannerCase, PlannerContract
from recsmith.testing.problems import sample_problems

__all__ = ["CostModelContract", "PlannerCase", "PlannerContract", "sample_problems"]
