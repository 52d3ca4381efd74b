"""Training data from files or a generator: batches of NumPy arrays, with an exact position of which samples were used.

The modules of formats, and those that count and write data, are imported when they are first used.
"""

from typing import TYPE_CHECKING

from recsmith._late import late_names
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.batches import Batches, Counts
from recsmith.data.dataset import Dataset, DataSpec, load_spec, open_dataset, spec_from_raw, spec_to_raw
from recsmith.data.order import Position

if TYPE_CHECKING:
    from recsmith.data.checking import DataCheck, check_data, check_spec
    from recsmith.data.columns.features import ColumnFeature
    from recsmith.data.counted_vocabularies import make_vocabularies
    from recsmith.data.criteo.source import CriteoSpec
    from recsmith.data.figures import DataFigures, FeatureFigures, SessionFigures, count_figures
    from recsmith.data.generator.source import Optimum, area_under_curve, planted_optimum
    from recsmith.data.generator.spec import (
        DriftSpec,
        GeneratedFeature,
        GeneratorSpec,
        SessionSpec,
        SwapSpec,
        TeacherSpec,
    )
    from recsmith.data.movielens import MovieLensSpec
    from recsmith.data.parquet.spec import ParquetSpec
    from recsmith.data.sequences.spec import EventFiles, GeneratedEvents, MovieLensEvents, SequencesSpec
    from recsmith.data.text.spec import JoinedFile, TextSpec
    from recsmith.data.workload import counted_workload, generator_like, schema_workload
    from recsmith.data.write import check_folder, write_dataset

__getattr__ = late_names(__name__, {
    "recsmith.data.checking": ("DataCheck", "check_data", "check_spec"),
    "recsmith.data.criteo.source": ("CriteoSpec",),
    "recsmith.data.figures": ("DataFigures", "FeatureFigures", "SessionFigures", "count_figures"),
    "recsmith.data.generator.source": ("Optimum", "area_under_curve", "planted_optimum"),
    "recsmith.data.generator.spec": (
        "DriftSpec", "GeneratedFeature", "GeneratorSpec", "SessionSpec", "SwapSpec", "TeacherSpec",
    ),
    "recsmith.data.movielens": ("MovieLensSpec",),
    "recsmith.data.columns.features": ("ColumnFeature",),
    "recsmith.data.parquet.spec": ("ParquetSpec",),
    "recsmith.data.sequences.spec": ("EventFiles", "GeneratedEvents", "MovieLensEvents", "SequencesSpec"),
    "recsmith.data.counted_vocabularies": ("make_vocabularies",),
    "recsmith.data.text.spec": ("JoinedFile", "TextSpec"),
    "recsmith.data.workload": ("counted_workload", "generator_like", "schema_workload"),
    "recsmith.data.write": ("check_folder", "write_dataset"),
})  # fmt: skip

__all__ = [
    "Batch", "Batches", "ColumnFeature", "Counts", "CriteoSpec", "DataCheck", "DataFeature", "DataFigures",
    "DataSchema", "DataSpec", "Dataset", "DriftSpec", "EventFiles", "FeatureFigures", "GeneratedEvents",
    "GeneratedFeature", "GeneratorSpec", "JaggedIds", "JoinedFile", "MovieLensEvents", "MovieLensSpec", "Optimum",
    "ParquetSpec", "Position", "SequencesSpec", "SessionFigures", "SessionSpec", "SwapSpec", "TeacherSpec",
    "TextSpec", "area_under_curve", "check_data", "check_folder", "check_spec", "count_figures", "counted_workload",
    "generator_like", "load_spec", "make_vocabularies", "open_dataset", "planted_optimum", "schema_workload",
    "spec_from_raw", "spec_to_raw", "write_dataset",
]  # fmt: skip
