"""The command line: app.py lists each command and its module; costly imports wait until a command runs."""

from recsmith.cli.app import main

__all__ = ["main"]
