"""The placement environment of learned planners: what is placed in which order, and the state of every device.

    items.py            which tables are split first, and the items (pieces) that are placed one after the other
    episodes.py         many placements of the items side by side: masks, targets, dead ends
    cost_network.py     seconds of any set of items on a device, predicted
    rollouts.py         a network that scores devices places items one after the other
    drafts.py           the placements of any policy as plans: roll-outs, samples, repair, local search from the best
    words.py            the words of planners that have learned, such as dreamshard?samples=16
    policy_files.py     policies as files
    policy_planner.py   planners that place by a trained policy
    best_split.py       the items of the rule of what is split that suits a problem, and their longest-first placement
    per_problem.py      planners that learn while they plan, for one problem
    prices.py           what items cost on devices, by any cost model: many placements at once, and every change of one

Only NumPy; recsmith.learning.policies.environment offers the same as a Gymnasium environment.
"""

from recsmith.planners.placing.episodes import Episodes
from recsmith.planners.placing.items import INPUT_COUNT, SPLITS, TRAINED, ItemBatch, SplitRule, items_of

__all__ = ["INPUT_COUNT", "SPLITS", "TRAINED", "Episodes", "ItemBatch", "SplitRule", "items_of"]
