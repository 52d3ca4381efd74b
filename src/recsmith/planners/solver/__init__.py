"""The whole space of a small problem, enumerated or given to CP-SAT of OR-Tools."""

from recsmith._install import has_solver as is_installed

__all__ = ["is_installed"]
