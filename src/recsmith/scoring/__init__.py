"""How good predictions are: normalized entropy, log loss, calibration, AUC, and rankings of samples beside others.

scores.py holds the figures and says them in words, without torch; predictions.py makes them of all ranks' predictions,
and ranking.py of samples that belong together.
"""
