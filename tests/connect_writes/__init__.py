"""Drawn calls of DataFrame writers and of SQL, here and with plain Spark: the same rows, errors and tables."""
