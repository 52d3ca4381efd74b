"""Planner `autoshard`: items go, dearest first, where a trained policy scores highest (placing/policy_planner.py)."""

from dataclasses import dataclass
from typing import ClassVar

from recsmith.planners.autoshard.files import AUTOSHARD
from recsmith.planners.placing.policy_files import PolicyKind
from recsmith.planners.placing.policy_planner import PolicyPlanner


@dataclass(frozen=True)
class AutoShard(PolicyPlanner):
    """A policy of AutoShard: an LSTM over the items, beside what devices hold."""

    kind: ClassVar[PolicyKind] = AUTOSHARD

    name: str = "autoshard"
    about: str = "A trained LSTM policy (Zha et al., 2022a); ?samples=16, ?refine."
