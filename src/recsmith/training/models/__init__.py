"""Models of histories, by name: what each reads and its settings, without torch; one file each, loaded when it is made.

A sequence model (protocol.py) gets the tables whose rows are not pooled and says a logit for each label of a sample. It
is named by `model.name` of a run, its settings stand in `model.arguments`.
"""

from recsmith._components import register
from recsmith.training.models.settings import (
    SEQUENCE_MODELS,
    SequenceSettings,
    scores_candidates,
    sequence_settings,
)
from recsmith.training.models.tables import POOLING, check_tables, sequence_tables
from recsmith.training.seams.kinds import MODEL

__all__ = [
    "MODEL", "POOLING", "SEQUENCE_MODELS", "SequenceSettings", "check_tables", "scores_candidates",
    "sequence_settings", "sequence_tables",
]  # fmt: skip

register(MODEL, "hstu", "recsmith.training.models.hstu:HSTU")
register(MODEL, "sasrec", "recsmith.training.models.sasrec:SASRec")
register(MODEL, "din", "recsmith.training.models.din:DIN")
