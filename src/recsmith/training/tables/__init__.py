"""How the tables of a model are built, fed, combined and exported: table modules (protocol.py)."""
