"""Named models: the tables that each reads and its settings, without torch; one file each, loaded when it is made.

A model (protocol.py) is named by `model.name` of a run, and its settings are in `model.arguments`. Models of histories
get tables that are not pooled (settings.py), other models get pooled tables (pooled_settings.py).
"""

from collections.abc import Mapping
from typing import Any

from recsmith._components import register
from recsmith.files import decode_part
from recsmith.training.models.pooled_settings import (
    POOLED_MODELS,
    WIDE,
    PooledSettings,
    TwoTowerSettings,
    WideDeepSettings,
)
from recsmith.training.models.settings import SEQUENCE_MODELS, SequenceSettings, scores_candidates, sequence_settings
from recsmith.training.models.tables import POOLING, check_tables, sequence_tables
from recsmith.training.seams.system import MODEL

__all__ = [
    "MODEL", "POOLED_MODELS", "POOLING", "SEQUENCE_MODELS", "WIDE", "PooledSettings", "SequenceSettings",
    "TwoTowerSettings", "WideDeepSettings", "check_tables", "model_settings", "scores_candidates", "sequence_settings",
    "sequence_tables",
]  # fmt: skip

register(MODEL, "hstu", "recsmith.training.models.hstu:HSTU")
register(MODEL, "sasrec", "recsmith.training.models.sasrec:SASRec")
register(MODEL, "din", "recsmith.training.models.din:DIN")
register(MODEL, "mmoe", "recsmith.training.models.mmoe:MMoE")
register(MODEL, "ple", "recsmith.training.models.ple:PLE")
register(MODEL, "two_tower", "recsmith.training.models.two_tower:TwoTower")
register(MODEL, "wide_deep", "recsmith.training.models.wide_deep:WideDeep")


def model_settings(name: str, arguments: Mapping[str, Any] | None) -> SequenceSettings | PooledSettings | None:
    """The settings of a named model in a run; None for other models.

    Raises:
        UsageError: a setting is unknown, of a wrong type or out of range.
    """
    if name in POOLED_MODELS:
        return decode_part(POOLED_MODELS[name], dict(arguments or {}), "model.arguments")
    return sequence_settings(name, arguments)
