"""The command line, as tests of cli/ run it."""

from cli.conftest import run, shell, tables

__all__ = ["run", "shell", "tables"]
