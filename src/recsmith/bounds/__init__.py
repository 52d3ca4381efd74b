"""Lower bounds on the seconds of any plan, and the relaxations behind them; docs/bounds.md proves them."""

from recsmith.bounds.first import LowerBound, first_bound
from recsmith.bounds.linear_bounds import LinearBound, SelectionLimits
from recsmith.bounds.lower_bound import OnBound, lower_bound, prove
from recsmith.bounds.relaxation import Choice, Relaxation, fitting_price

__all__ = [
    "Choice", "LinearBound", "LowerBound", "OnBound", "Relaxation", "SelectionLimits", "first_bound", "fitting_price",
    "lower_bound", "prove",
]  # fmt: skip
