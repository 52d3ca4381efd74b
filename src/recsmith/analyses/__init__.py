"""Analyses of plans: which planner is best, what limits a step, how many devices pay, how certain a cost is."""
