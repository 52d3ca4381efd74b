"""Embedding tables stored smaller: mixed dimensions, compositional embeddings, hashes plain and learned.

A transform says which physical tables a logical one is stored in, and where its ids go. Planner, checkpoints and
re-sharding see physical tables only. combining.py, which needs torch, puts vectors together again.
"""

from recsmith.embeddings.compositional import Compositional
from recsmith.embeddings.compression import CompressionRule, transforms_of
from recsmith.embeddings.hashing import Hashing
from recsmith.embeddings.id_maps import IdMap, by_popularity, load_maps, save_maps
from recsmith.embeddings.learned_hash import learn_hash
from recsmith.embeddings.mixed_dimension import Block, MixedDimension
from recsmith.embeddings.parts import EmbeddingTransform, Lookup, Part, parameters, physical
from recsmith.embeddings.path_based import PathBased
from recsmith.embeddings.power_rule import mixed_parameters, power_rule, powers_of_two

__all__ = [
    "Block",
    "Compositional",
    "CompressionRule",
    "EmbeddingTransform",
    "Hashing",
    "IdMap",
    "Lookup",
    "MixedDimension",
    "Part",
    "PathBased",
    "by_popularity",
    "learn_hash",
    "load_maps",
    "mixed_parameters",
    "parameters",
    "physical",
    "power_rule",
    "powers_of_two",
    "save_maps",
    "transforms_of",
]
