"""The placement environment of learned planners: what is placed in which order, and the state of every device.

    items.py            which tables are split first, the items (pieces) that are placed one after the other, and many
                        placements of them side by side: masks, targets, dead ends
    best_split.py       which of the split rules suits a problem: the one whose longest-first plan has the shortest step
    policy_network.py   predicts the seconds of any set of items on a device; a network that scores devices places items
    policy_files.py     policies as files
    policy_options.py   names with options, such as dreamshard?samples=16
    policy_planner.py   planners that place by a trained policy: roll-outs, samples, repair, local search from the best
    shapes.py           the environment in which splitting a table is an action
    split_policy.py     the split policy, which decides whether a table is split further, and its files
    split_episodes.py   many placements in that environment side by side
    split_planner.py    plans made by split policies: dreamshard?splits=8

Only NumPy is needed; recsmith.learning.policies.environment offers the same as a Gymnasium environment.
"""

from recsmith.planners.placing.best_split import SplitItems, best_split, longest_first_plan
from recsmith.planners.placing.items import (
    INPUT_COUNT,
    SPLITS,
    TRAINED,
    WHOLE,
    ColumnSplitRule,
    Episodes,
    ItemBatch,
    items_of,
)
from recsmith.planners.search.device_state import NOWHERE, Assignment

__all__ = [
    "INPUT_COUNT", "NOWHERE", "SPLITS", "TRAINED", "WHOLE", "Assignment", "ColumnSplitRule", "Episodes", "ItemBatch",
    "SplitItems", "best_split", "items_of", "longest_first_plan",
]  # fmt: skip
