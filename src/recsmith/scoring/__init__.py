"""Scores of predictions: normalized entropy, log loss, calibration, AUC, and rankings of samples within groups.

scores.py defines the scores and formats them, without torch; predictions.py computes them from the predictions of all
ranks, and ranking.py from samples that are grouped, such as by user.
"""
