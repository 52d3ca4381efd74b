"""Id maps of a run: kept once with what was trained, and refused where they are others."""

from pathlib import Path

import numpy as np
import pytest

from recsmith.embeddings import CompressionRule, IdMap, save_maps
from recsmith.errors import UsageError
from recsmith.training import RunModel
from recsmith.training.systems.stored.kept_maps import check_maps, keep_maps, kept_names, with_maps_in


def test_maps_that_several_rules_name_are_kept_once(tmp_path: Path) -> None:
    file, other, kept = str(tmp_path / "maps.safetensors"), str(tmp_path / "other.safetensors"), tmp_path / "kept"
    for each in (file, other):
        save_maps({"a": IdMap(numbers=np.arange(9, dtype=np.int32))}, each)
    kept.mkdir()
    rules = [CompressionRule(method="learned_hash", tables=name, maps=maps) for name, maps in
             (("a", file), ("b", other), ("c", file))]  # fmt: skip
    model = RunModel(embedding_dim=4, compression=(CompressionRule(method="hash", tables="d"), *rules))
    assert kept_names(model) == ["maps-1.safetensors", "maps-2.safetensors", "maps-1.safetensors"]
    copied = keep_maps(model, kept)
    assert [rule.maps for rule in copied.compression] == [None, *kept_names(model)]
    assert sorted(path.name for path in kept.iterdir()) == ["maps-1.safetensors", "maps-2.safetensors"]
    assert with_maps_in(copied, kept).compression[1].maps == str(kept / "maps-1.safetensors")
    check_maps(model, kept)
    save_maps({"a": IdMap(numbers=np.zeros(9, np.int32))}, other)
    with pytest.raises(UsageError, match=r"other.safetensors' has changed"):
        check_maps(model, kept)
