"""Names and paths that people give: text, or anything with a path."""

import os
from typing import cast

from recsmith._types import Source
from recsmith.errors import UsageError


def source_text(source: object, wanted: str) -> str:
    """The text of a name or path; UsageError for what is neither.

    wanted: what may be given instead, such as 'a Workload'.
    """
    text: object = os.fspath(cast(Source, source)) if isinstance(source, str | os.PathLike) else None
    if not isinstance(text, str):
        kind = type(cast(object, source)).__name__
        hint = "; give its .plan" if kind == "Result" else ""
        raise UsageError(f"a {kind} is neither {wanted} nor a name or path{hint}")
    return text


__all__ = ["Source", "source_text"]
