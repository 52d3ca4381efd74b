"""Learned models of all-to-alls, trained on comm measurements."""
