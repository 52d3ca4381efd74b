"""Data that training reads: batches as NumPy arrays, exact about which samples were used, from files or generated."""

from recsmith.data.batch import Batch, JaggedIds
from recsmith.data.batches import Batches, Counts
from recsmith.data.criteo import CriteoSpec
from recsmith.data.dataset import Dataset
from recsmith.data.generator import DriftSpec, GeneratedFeature, GeneratorSpec, SessionSpec, TeacherSpec
from recsmith.data.movielens import MovieLensSpec
from recsmith.data.order import Position
from recsmith.data.parquet import ParquetFeature, ParquetSpec
from recsmith.data.schema import DataFeature, DataSchema
from recsmith.data.specs import DataSpec, load_spec, open_dataset, spec_from_raw, spec_to_raw

__all__ = [
    "Batch",
    "Batches",
    "Counts",
    "CriteoSpec",
    "DataFeature",
    "DataSchema",
    "DataSpec",
    "Dataset",
    "DriftSpec",
    "GeneratedFeature",
    "GeneratorSpec",
    "JaggedIds",
    "MovieLensSpec",
    "ParquetFeature",
    "ParquetSpec",
    "Position",
    "SessionSpec",
    "TeacherSpec",
    "load_spec",
    "open_dataset",
    "spec_from_raw",
    "spec_to_raw",
]
