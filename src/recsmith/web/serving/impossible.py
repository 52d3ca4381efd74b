"""Problems without a plan, in the words of the page: what is too small, and changes that are buttons there.

Where the bytes of the weights alone are more than all devices hold, that is said at once, without a search.
"""

import math
import re

from recsmith.clusters import Cluster, cluster_from_raw
from recsmith.errors import Infeasible, RecSmithError
from recsmith.files import Raw, encode
from recsmith.planning.registry import device_hosts
from recsmith.problems import Space, constraints_from_raw
from recsmith.sharding import HOST_KERNELS, UVM_CACHING
from recsmith.units import counted, format_size, parse_size
from recsmith.web.serving.requests import ProblemChanges
from recsmith.workloads import Workload
