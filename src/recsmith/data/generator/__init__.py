"""Generated data whose truth is known: Zipf ids, sessions, drift, and a planted teacher."""

from recsmith.data.generator.source import GeneratorSource
from recsmith.data.generator.spec import (
    DriftSpec,
    GeneratedFeature,
    GeneratorSpec,
    SessionSpec,
    TeacherSpec,
)

__all__ = ["DriftSpec", "GeneratedFeature", "GeneratorSource", "GeneratorSpec", "SessionSpec", "TeacherSpec"]
