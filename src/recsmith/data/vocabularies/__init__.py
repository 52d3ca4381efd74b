"""Vocabularies: the table row of each text or raw id, made by counting files of any size, looked up while reading."""
