"""Turns columns of tables into samples: which column is what, and how values become bags, dense values and labels."""
