"""The command line: app.py says which module holds which command; nothing heavy is imported before a command runs."""

from recsmith.cli.app import main

__all__ = ["main"]
