"""Learned models of all-to-alls, for any number of ranks."""
