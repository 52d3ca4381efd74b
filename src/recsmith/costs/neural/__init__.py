"""Cost models `neural:<name>`: kernel times that a network learned from measurements."""
