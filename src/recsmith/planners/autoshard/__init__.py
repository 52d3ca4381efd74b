"""Planner `autoshard`: a policy with an LSTM over the items, trained on measured shards (Zha et al., KDD 2022)."""

from recsmith.planners.autoshard.planner import AutoShard

__all__ = ["AutoShard"]
