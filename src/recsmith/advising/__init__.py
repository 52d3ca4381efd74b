"""Advice on runs: a draft for new data (drafting.py), and what a run could switch on, priced and tried.

runs.py prices changes by dry runs, and trials.py trains the first changes for some steps on this machine.
"""
