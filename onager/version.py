"""The version of Onager."""

__version__ = "0.2.0"
