"""Vocabularies: which row of a table each text or raw id has, counted in files of any size and looked up as read."""
