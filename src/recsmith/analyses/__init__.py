"""Questions about plans: which planner is best, what binds a step, how many devices pay, how sure a cost is."""
