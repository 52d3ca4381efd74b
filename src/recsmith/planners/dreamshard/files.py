"""Policies of DreamShard as files (placing/policy_files.py)."""

from recsmith.planners.dreamshard.network import SHAPES, DreamShardNetwork
from recsmith.planners.placing.policy_files import PolicyKind

DREAMSHARD = PolicyKind("dreamshard", SHAPES, DreamShardNetwork)
SCHEMA, find_policy, load_policy = DREAMSHARD.schema, DREAMSHARD.find, DREAMSHARD.load
