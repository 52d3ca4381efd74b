"""Policies of AutoShard as files (placing/policy_files.py)."""

from recsmith.planners.autoshard.network import SHAPES, AutoShardNetwork
from recsmith.planners.placing.policy_files import PolicyKind

AUTOSHARD = PolicyKind("autoshard", SHAPES, AutoShardNetwork)
