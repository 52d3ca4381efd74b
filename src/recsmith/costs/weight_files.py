"""Files of learned weights: tensors and their card in one safetensors file, and a copy of the card for people.

The card is stored as metadata of the weights, so that the two cannot be separated: one rename replaces both. Nothing in
a file is executed. Each model checks its own card and tensors.
"""

import json
from importlib import import_module, resources
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from recsmith._types import Floats
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, did_you_mean, parse_json, replace_file

SUFFIX = ".safetensors"
PREFIX = "neural:"  # prefix of the names of learned cost models
LARGEST_WEIGHTS = 2**26  # bytes; shipped weights have a thousandth
COMM = "comm-"  # prefix of the names of all-to-all models
POLICIES = ("dreamshard-", "autoshard-", "splits-")  # prefixes of policies; all other weights are cost models


def write_weights(target: str, tensors: dict[str, Any], card: Raw) -> None:
    """Write tensors and their card, completely or not at all; if writing fails, the old file is kept."""
    from safetensors.numpy import save

    text = json.dumps(card, indent=2, allow_nan=False)
    whole = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in tensors.items()}
    replace_file(Path(target), save(whole, metadata={"card": text}))
    replace_file(card_path(target), text.encode() + b"\n")


def read_weights(path: Path, made_by: str) -> tuple[Any, dict[str, Floats]]:
    """(card, tensors) of a file, unchecked.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: the file is damaged, or has no card.
    """
    metadata, tensors = _open(path)
    if "card" not in metadata:
        raise CorruptFile(f"'{path}' holds no card; `{made_by}` writes one")
    return parse_json(metadata["card"], str(path)), tensors


def find_weights(name: str, what: str, made_by: str, names: list[str], prefix: str = "") -> Path:
    """The file of a path that ends with .safetensors, or of a shipped name. prefix: of the shipped files."""
    if name.endswith(SUFFIX):
        return Path(name)
    if name in names:
        return _home() / f"{prefix}{name}{SUFFIX}"
    known = did_you_mean(name, names) if names else "; none ship yet"
    known = known if known.endswith("?") else known + ";"
    raise UsageError(
        f"no learned {what} is called '{name}'{known} or give the path of a {SUFFIX} file, which `{made_by}` makes"
    )


def check_tensors(tensors: dict[str, Floats], shapes: dict[str, tuple[int, ...]], source: str, made_by: str) -> None:
    """Refuse tensors that are unknown, missing, of another shape, or not finite.

    Raises:
        CorruptFile: names the first wrong tensor, and the fault.
    """
    for name in sorted({*shapes, *tensors}):
        if name not in tensors or name not in shapes:
            damaged(source, f"tensor '{name}' is {'unknown' if name in tensors else 'missing'}", made_by)
        if tensors[name].shape != shapes[name]:
            damaged(source, f"tensor '{name}' has shape {tensors[name].shape}, not {shapes[name]}", made_by)
        if not np.isfinite(tensors[name]).all():
            damaged(source, f"tensor '{name}' holds numbers that are not finite", made_by)


def damaged(source: str, reason: str, made_by: str) -> NoReturn:
    """Raise CorruptFile for content that no training writes, with the reason."""
    raise CorruptFile(f"'{source}': {reason}; train it again with `{made_by}`")


def shipped() -> list[str]:
    """Names of all shipped weights."""
    return sorted(file.name.removesuffix(SUFFIX) for file in _home().glob(f"*{SUFFIX}"))


def shipped_models() -> list[str]:
    """Names of the shipped learned cost models, without PREFIX."""
    return [name for name in shipped() if not name.startswith((COMM, *POLICIES))]


def data_file(name: str) -> Path:
    """A data file shipped next to the weights."""
    return _home() / name


def starts_with_card(schema: str) -> bytes:
    """A regular expression for the beginning of weights with a card of a schema; the card is stored first."""
    family = schema.rpartition("/")[0].encode()
    return rb'.{8}\{"__metadata__":\{"card":"\{\\n *\\"schema\\": *\\"' + family + b"/"


def card_path(target: str) -> Path:
    """The path of the card next to the weights."""
    return Path(target.removesuffix(SUFFIX) + ".json")


def _home() -> Path:
    return Path(str(resources.files("recsmith.costs"))) / "weights"


def _open(path: Path) -> tuple[dict[str, str], dict[str, Floats]]:
    """Metadata and tensors of a safetensors file, which must be F32 and at most LARGEST_WEIGHTS bytes."""
    safetensors: Any = import_module("safetensors")
    size = _size(path)
    try:
        with np.errstate(invalid="ignore"), safetensors.safe_open(path, framework="np") as file:  # NaN: check_tensors
            odd = next((name for name in file.keys() if file.get_slice(name).get_dtype() != "F32"), None)  # noqa: SIM118
            if odd is not None:
                raise CorruptFile(f"'{path}': tensor '{odd[:80]}' is not of type F32; train it again")
            tensors = {name: np.asarray(file.get_tensor(name), dtype=np.float64) for name in list(file.keys())}
            return file.metadata() or {}, tensors
    except (safetensors.SafetensorError, OSError, ValueError, TypeError) as error:
        raise CorruptFile(f"'{path}' ({size:,} bytes) is no whole safetensors file ({error}); train it again") from None


def _size(path: Path) -> int:
    """The size of a file; UsageError if it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"cannot read '{path}': it is no file; give the path of a {SUFFIX} file")
        with path.open("rb"):
            size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read '{path}': {reason}; give the path of a {SUFFIX} file") from None
    if size > LARGEST_WEIGHTS:
        raise CorruptFile(f"'{path}' has {size:,} bytes; learned weights have at most {LARGEST_WEIGHTS:,}")
    return size
