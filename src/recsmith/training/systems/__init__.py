"""Published techniques as folders: each bundles its components and what the core has to know of them, in a record.

`SYSTEM` of a folder is that record (seams/system.py). A folder can be deleted, with its line in SYSTEMS there.
"""
