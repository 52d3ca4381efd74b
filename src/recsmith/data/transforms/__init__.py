"""Transforms of samples, declared in the spec of a dataset: what becomes of ids and dense values before training."""
