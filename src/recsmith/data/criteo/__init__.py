"""Criteo's click logs (Kaggle and Terabyte) as published: lines of a label, 13 counts and 26 hashed categories."""

from recsmith.data.criteo.source import CriteoSource
from recsmith.data.criteo.spec import CriteoSpec

__all__ = ["CriteoSource", "CriteoSpec"]
