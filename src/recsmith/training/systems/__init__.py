"""Published techniques, one folder each: its components, its commands, and the record by which the core knows it.

`SYSTEM` of a folder is this record (seams/system.py). A folder can be deleted together with its entry in SYSTEMS
(listed.py).
"""

import recsmith.training.seams  # noqa: F401 (all records load in one order, whichever is asked for first)
