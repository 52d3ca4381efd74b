"""Files in object stores (s3://, gs://, hdfs://), by pyarrow's file systems; imported when an address is named.

stores.py parses addresses, makes the client, retries operations that were cut off, and words the refusals of a store.
paths.py gives an address the methods of a path that readers need; folders.py publishes folders atomically.
"""
