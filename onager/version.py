"""The version of Onager."""

__version__ = "0.1.0"
