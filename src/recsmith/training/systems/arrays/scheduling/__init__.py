"""Schedules of an array's layers in torch: profiling.py traces models to graphs, running.py executes schedules.

The scheduler itself is in recsmith.prediction.activations.
"""
