"""Plans under a learned cost model beside plans under `analytic`, both measured: the tables of docs/benchmarks/learned-costs.md.

    python benchmarks/planned_under.py neural:simulated-h100 --hardware simulated:h100 --count 144 -o judged.json

Tasks are 10 to 60 tables, each at most once, of a sample of 856 that no model was trained on (`recsmith workload sample
--tables 856 --seed 1`), on 4 or 8 devices, 65,536 samples of all devices. As in optimality.py, tasks are left out where
one piece that cannot be split takes 0.7 of the mean load. `auto` plans each under both models; the kernels of all ranks are measured,
collectives are priced by `analytic`, for both alike. With -o, tasks that the file holds are not planned again.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import count, islice

import numpy as np
from optimality import LARGEST_SHARE, largest_share
from records import Key, Row, resumed

import recsmith
from recsmith._types import Floats
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model, price
from recsmith.costs.neural.reach import Region
from recsmith.errors import RecSmithError
from recsmith.hardware import load_hardware
from recsmith.hardware.loads import Load, loads_of, scale_for
from recsmith.learning.costs.regions import region_names
from recsmith.measuring.intervals import interval
from recsmith.plans import Plan
from recsmith.problems import Space, build_problem, footprint_of
from recsmith.verifying.kernels.steps import step_seconds
from recsmith.workloads import Workload
from recsmith.workloads.sample import sample_workload
