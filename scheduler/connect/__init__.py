"""Spark Connect's service: sessions and operations that outlive every process, for unmodified clients of Spark."""
