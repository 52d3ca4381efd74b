"""What every room shares: the noun decorator, and names for arrays."""

from dataclasses import dataclass
from typing import Any, TypeVar, cast, dataclass_transform

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def noun(cls: type[Class]) -> type[Class]:
    """A frozen, keyword-only dataclass that refuses unknown fields when it is read from a file."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    cast(Any, made).__pydantic_config__ = {"extra": "forbid"}
    return made
