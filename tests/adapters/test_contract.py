"""The contract with the installed TorchRec: each field, setting and module type has a policy, and the docs show it."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("torchrec")
DOCS = Path(__file__).parents[2] / "docs" / "torchrec.md"
ALSO = {  # known beside what the installed release has: of another release that is supported, or of TorchRec's own
    "fused_params": {
        *("ar_alpha", "ema_beta", "min_shrinkage"),  # FBGEMM 1.9
        *("use_one_tbe_per_table", "res_enabled_tables", "res_store_shards"),  # taken out before FBGEMM
    },
    "module": {"quant.FeatureProcessedEmbeddingBagCollection"},
}
NOUNS = ["ParameterConstraints", "CacheParams", "config", "sharder", "fused_params", "module"]


def _policies(noun: str) -> Mapping[str, Any]:
    from recsmith.adapters.constraints import CACHE_FIELDS, FIELDS
    from recsmith.adapters.field_policies import CONFIG_FIELDS, MODULE_TYPES
    from recsmith.adapters.sharders import FUSED_PARAMS, SETTINGS

    tables = (FIELDS, CACHE_FIELDS, CONFIG_FIELDS, SETTINGS, FUSED_PARAMS, MODULE_TYPES)
    return dict(zip(NOUNS, tables, strict=True))[noun]


def _installed(noun: str) -> set[str]:
    """The names that the installed TorchRec and FBGEMM have for a noun."""
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
    from torchrec import EmbeddingBagConfig, EmbeddingConfig
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.types import CacheParams

    nouns = {"ParameterConstraints": [ParameterConstraints], "CacheParams": [CacheParams],
             "config": [EmbeddingBagConfig, EmbeddingConfig]}  # fmt: skip
    if noun in nouns:
        return {field.name for kind in nouns[noun] for field in fields(kind)}
    if noun == "fused_params":
        return set(signature(SplitTableBatchedEmbeddingBagsCodegen.__init__).parameters) - {"self"}
    return {*_module_types()} if noun == "module" else {*_sharder_settings()}


def _sharder_classes() -> Iterator[type[Any]]:
    """Every class of torchrec.distributed that shards a module."""
    import torchrec.distributed
    from torchrec.distributed.types import ModuleSharder

    for module in pkgutil.iter_modules(torchrec.distributed.__path__, "torchrec.distributed."):
        if not module.ispkg:
            importlib.import_module(module.name)
    classes: list[type[Any]] = [ModuleSharder]
    for cls in classes:
        classes += cls.__subclasses__()
        if cls.__module__.startswith("torchrec.distributed.") and ".test" not in cls.__module__:
            yield cls


def _module_types() -> Iterator[str]:
    from recsmith.adapters.field_policies import type_name

    for cls in _sharder_classes():
        kind = cls.module_type.fget(None)
        if kind is not None:
            yield type_name(kind)


def _sharder_settings() -> Iterator[str]:
    """Arguments, methods and properties of the sharders of modules that are planned."""
    from recsmith.adapters.field_policies import MODULE_TYPES, type_name

    planned = {name for name, each in MODULE_TYPES.items() if each.kind == "planned"}
    for cls in _sharder_classes():
        kind = cls.module_type.fget(None)
        if kind is not None and type_name(kind) in planned:
            yield from set(signature(cls.__init__).parameters) - {"self"}
            yield from (name for name in dir(cls) if not name.startswith("_"))


@pytest.mark.parametrize("noun", NOUNS)
def test_each_name_of_the_installed_torchrec_has_a_policy(noun: str) -> None:
    installed, known, also = _installed(noun), set(_policies(noun)), ALSO.get(noun, set())
    assert installed - known == set()
    assert known - installed <= also


@pytest.mark.parametrize("noun", NOUNS)
def test_the_docs_show_the_policy_of_each_name(noun: str) -> None:
    """Names of one policy share a line; the fields of CacheParams stand behind their prefix."""
    lines = DOCS.read_text("utf-8").splitlines()
    prefix = "cache_params." if noun == "CacheParams" else ""
    for name, policy in _policies(noun).items():
        ends = f"| {policy.kind} | {policy.note} |"
        assert any(f"`{prefix}{name}`" in line.removesuffix(ends) for line in lines if line.endswith(ends)), name
