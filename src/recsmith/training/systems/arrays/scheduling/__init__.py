"""Schedules of an array's layers in torch: profiling.py makes graphs of models, running.py does what is scheduled.

The scheduler itself is in recsmith.prediction.activations.
"""
