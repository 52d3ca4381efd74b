"""Transforms of samples, declared in the spec of a dataset: what becomes of ids and dense values before training."""

from recsmith.data.transforms.declared import (
    BoxCox,
    Bucketize,
    Clip,
    First,
    HashIds,
    Log,
    MapIds,
    NGram,
    OneHot,
    Transform,
    transform_from_raw,
    transform_to_raw,
)
from recsmith.data.transforms.graph import TransformGraph
from recsmith.data.transforms.source import TransformedSource

__all__ = [
    "BoxCox",
    "Bucketize",
    "Clip",
    "First",
    "HashIds",
    "Log",
    "MapIds",
    "NGram",
    "OneHot",
    "Transform",
    "TransformGraph",
    "TransformedSource",
    "transform_from_raw",
    "transform_to_raw",
]
