"""Published techniques as folders: each bundles its components, its commands, and what the core has to know of it.

`SYSTEM` of a folder is its record (seams/system.py). A folder can be deleted with its entry in SYSTEMS (listed.py).
"""

import recsmith.training.seams  # noqa: F401 (all records load in one order, whichever is asked for first)
