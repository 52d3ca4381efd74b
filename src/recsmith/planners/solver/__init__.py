"""The whole space of a small problem, enumerated or given to CP-SAT of OR-Tools."""

from importlib.util import find_spec


def is_installed() -> bool:
    """Whether OR-Tools, which the extra `solve` brings, is installed."""
    return find_spec("ortools") is not None


__all__ = ["is_installed"]
