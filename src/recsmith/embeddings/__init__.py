"""Compressed embedding tables: mixed dimensions, compositional embeddings, fixed and learned hashes.

A transform defines the physical tables that store a logical table, and routes ids to them. Planner, checkpoints and
re-sharding see physical tables only. combining.py, which needs torch, combines the physical vectors again.
"""

from typing import TYPE_CHECKING

from recsmith._late import late_names
from recsmith.embeddings.compression import CompressionRule, LogicalTable, StorageMethod, transforms_of
from recsmith.embeddings.id_maps import IdMap, by_popularity, load_maps, save_maps
from recsmith.embeddings.transforms import EmbeddingTransform, Lookup, PhysicalTable, parameters, physical

if TYPE_CHECKING:
    from recsmith.embeddings.hashing import learn_hash

__getattr__ = late_names(__name__, {"recsmith.embeddings.hashing": ("learn_hash",)})

__all__ = [
    "CompressionRule",
    "EmbeddingTransform",
    "IdMap",
    "LogicalTable",
    "Lookup",
    "PhysicalTable",
    "StorageMethod",
    "by_popularity",
    "learn_hash",
    "load_maps",
    "parameters",
    "physical",
    "save_maps",
    "transforms_of",
]
