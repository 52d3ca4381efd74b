"""Files in object stores (s3://, gs://, hdfs://), read and written by pyarrow's file systems; loaded when one is named.

An address is read by stores.py alone: it makes the client, tries again what was cut off, and words what a store
refuses. paths.py gives an address the few questions that readers ask a path; folders.py publishes folders whole.
"""
