"""Planner `dreamshard`: a policy that was trained to place tables (Zha et al., NeurIPS 2022)."""

from recsmith.planners.dreamshard.planner import DreamShard

__all__ = ["DreamShard"]
