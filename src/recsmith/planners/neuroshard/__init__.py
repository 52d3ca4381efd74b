"""Planner `neuroshard`: beam search over column halvings around a greedy grid search (Zha et al., MLSys 2023)."""

from recsmith.planners.neuroshard.planner import NeuroShard

__all__ = ["NeuroShard"]
