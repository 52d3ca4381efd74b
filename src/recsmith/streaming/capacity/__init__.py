"""Computes how many rows a dynamic table needs: different ids over time, and lookups that tables of each size serve.

id_sample.py samples the lookups of some ids. distances.py and caches.py compute which lookups a table serves, and
reads.py how many rows serve a share. law.py, fitting.py, drawn.py and forecast.py extrapolate a longer stream from its
beginning. capacity.py reads a dataset, and of_sketches.py the sketches of a watched job; prices.py plans tables of each
size.
"""

from recsmith.streaming.capacity.capacity import Asked, Capacity, FeatureCapacity, PolicyRows, StreamReader, features_of
from recsmith.streaming.capacity.forecast import Forecast, forecast
from recsmith.streaming.capacity.id_sample import IdSample, Sampled
from recsmith.streaming.capacity.reads import TableReads

__all__ = [
    "Asked", "Capacity", "FeatureCapacity", "Forecast", "IdSample", "PolicyRows", "Sampled", "StreamReader",
    "TableReads", "features_of", "forecast",
]  # fmt: skip
