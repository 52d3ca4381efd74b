"""Columns of tables as samples: which column is what, and how its values become bags, dense values and labels."""
