"""The command line: ``onager``, or ``python -m onager``."""

from onager.cli.app import main

__all__ = ["main"]
