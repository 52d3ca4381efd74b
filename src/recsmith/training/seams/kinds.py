"""Kinds of components that a run names, as errors call them."""

STEP, ROWS, WATCHER, UPDATE, TABLES = "step", "row store", "watcher", "update", "table module"
MODEL = "model"  # of histories (models/protocol.py)
