"""Planner `rnn`: a recurrent network that is trained for one problem, the baseline of learned placement."""

from recsmith.planners.rnn.planner import Rnn

__all__ = ["Rnn"]
