"""Annealing: plans change at random, for the worse too while they are hot.

One concept in two forms: compiled, for cost models that are the largest of linear pieces (kernel.py,
successive_halving.py, warm_start.py), and of NumPy's array operations, for every other one and where the package was
built without a C compiler (population_annealing.py).
"""
