"""Advice on runs: a draft for new data (drafting.py), and what a run could switch on, priced (runs.py) and tried.

runs.py asks dry runs, and trials.py trains some steps of the first changes here.
"""
