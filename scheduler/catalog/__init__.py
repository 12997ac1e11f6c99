"""The catalog in the store: databases, tables with their partitions, views and functions."""
