"""How many rows a table of ids without end needs: different ids over time, and what tables of each size serve.

id_sample.py keeps the lookups of some ids; distances.py and caches.py say which of them tables serve, reads.py how many
rows serve a share; law.py, fitting.py, drawn.py and forecast.py tell a longer stream from its beginning; capacity.py
reads a dataset, of_sketches.py what a watched job kept; prices.py plans tables of each size.
"""

from recsmith.streaming.capacity.capacity import Asked, Capacity, FeatureCapacity, PolicyRows, StreamReader, features_of
from recsmith.streaming.capacity.forecast import Forecast, forecast
from recsmith.streaming.capacity.id_sample import IdSample, Sampled
from recsmith.streaming.capacity.reads import TableReads

__all__ = [
    "Asked", "Capacity", "FeatureCapacity", "Forecast", "IdSample", "PolicyRows", "Sampled", "StreamReader",
    "TableReads", "features_of", "forecast",
]  # fmt: skip
