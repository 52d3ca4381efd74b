"""The plan that runs today, read from a planner's report, a dumped or a printed ShardingPlan, or a plan file.

report.py, dumped.py, printed.py     what TorchRec says, as tables with a module, a sharding type and shards
matching.py                          these tables matched with a workload's: placements
"""
