"""Helpers for tests of queries, functions and data sources that are to run distributed."""
