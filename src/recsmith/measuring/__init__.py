"""Measuring: which cases, how long, and where the answers are kept."""
