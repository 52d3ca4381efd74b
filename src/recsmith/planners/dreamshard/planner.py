"""Planner `dreamshard`: items go, dearest first, where a trained policy scores highest (placing/policy_planner.py)."""

from dataclasses import dataclass
from typing import ClassVar

from recsmith.planners.dreamshard.files import DREAMSHARD
from recsmith.planners.placing.policy_files import PolicyKind
from recsmith.planners.placing.policy_planner import PolicyPlanner


@dataclass(frozen=True)
class DreamShard(PolicyPlanner):
    """A policy of DreamShard: networks that see devices as they are with the item in question."""

    kind: ClassVar[PolicyKind] = DREAMSHARD

    name: str = "dreamshard"
    about: str = "A trained policy (Zha et al., 2022); ?samples=16, ?refine."
