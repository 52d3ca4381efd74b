"""Transforms of ids and dense values before training, declared in the spec of a dataset."""
