"""Sessions, standalone clusters and runners of Spark for tests."""
