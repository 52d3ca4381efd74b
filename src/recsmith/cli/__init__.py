"""The command line: one command, one file; nothing heavy is imported before a command runs."""

from recsmith.cli.app import main

__all__ = ["main"]
