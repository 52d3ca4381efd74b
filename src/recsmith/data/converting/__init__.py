"""Datasets of any format as folders of Parquet: one column a feature, in order or clustered by session, resumable."""

from recsmith.data.converting.cluster import cluster_dataset
from recsmith.data.converting.convert import convert_dataset
from recsmith.data.converting.folder import Progress
from recsmith.data.converting.keys import KeyColumns
from recsmith.data.converting.layout import Layout, read_popularity

__all__ = ["KeyColumns", "Layout", "Progress", "cluster_dataset", "convert_dataset", "read_popularity"]
