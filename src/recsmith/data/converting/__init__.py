"""Converts datasets of any format to folders of Parquet, in order or clustered by session; stopped commands resume."""

from recsmith.data.converting.convert import cluster_dataset, convert_dataset
from recsmith.data.converting.folder import ConversionProgress, FileLayout, read_popularity
from recsmith.data.converting.tables import KeyColumns

__all__ = ["ConversionProgress", "FileLayout", "KeyColumns", "cluster_dataset", "convert_dataset", "read_popularity"]
