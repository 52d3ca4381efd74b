"""Architecture search: choices for tables and layers, their prices on a cluster, and samples as settings of a run.

Krishna et al., "Differentiable NAS Framework and Application to Ads CTR Prediction" (arXiv 2110.14812). This room needs
no torch; the one-shot network and the step that trains it are in training/systems/search/ (tables.py and step.py).
"""

from recsmith.searching.space import PartChoice, PartChoices, Picks, SearchSpace, SpaceOptions, Unit

__all__ = ["PartChoice", "PartChoices", "Picks", "SearchSpace", "SpaceOptions", "Unit"]
