"""Annealing: plans change at random, and while they are hot also for the worse.

One concept in two forms: compiled code for cost models that are the largest of linear pieces (kernel.py,
successive_halving.py, warm_start.py), and NumPy's array operations for all other cost models and for packages that were
built without a C compiler (population_annealing.py).
"""
