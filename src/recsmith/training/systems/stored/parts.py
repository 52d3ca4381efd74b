"""Tables that are stored smaller, as a part of a run; without torch."""

from recsmith.training.run.parts import IDS, TABLES, Owned, PlainPart

COMPRESSION = PlainPart("model.compression", Owned({TABLES, IDS}))
