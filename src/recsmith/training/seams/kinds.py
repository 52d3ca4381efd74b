"""Kinds of components that a run names, as errors call them."""

STEP, ROWS, WATCHER, UPDATE, TABLES = "step", "row store", "watcher", "update", "table module"
PREDICTED = "predicted optimizer"  # a function (shapes of dense layers, cluster, a step's seconds): what it adds
MODEL = "model"  # of histories (models/protocol.py)
