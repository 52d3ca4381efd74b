"""Planners' use of a problem's whole space, if it is small: enumeration, and CP-SAT of OR-Tools."""

from recsmith._install import has_solver as is_installed

__all__ = ["is_installed"]
