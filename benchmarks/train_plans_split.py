"""Plans for a run that may split its tables, under the cost model that is learned on a CPU (train_plans_split.yaml).

python benchmarks/train_plans_split.py PLAN.json COLUMNS.json EVERY.json    # split by columns, and in every way
"""

import sys

import recsmith

made, columns, every = sys.argv[1:]
run = recsmith.load_plan(made)
by_columns = recsmith.Space(types=("table_wise", "column_wise", "data_parallel"))
for path, space in ((columns, by_columns), (every, recsmith.Space())):
    found = recsmith.plan(run.workload, run.cluster, cost_model="neural:cpu", space=space)
    recsmith.save_plan(found.plan, path)
