"""Planners for RecSmith that learn for one problem while they plan: surco and rnn."""

from recsmith_per_problem.rnn import Rnn
from recsmith_per_problem.surco import SurCo

__all__ = ["Rnn", "SurCo"]
