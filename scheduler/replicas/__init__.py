"""Replicas: which schedulers there are, and which of them acts first."""
