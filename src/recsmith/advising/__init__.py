"""Advice on a run: what it could switch on, priced by dry runs (runs.py), and tried here for some steps (trials.py)."""
