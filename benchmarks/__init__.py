"""Measurements against plain Spark, and the demo."""
