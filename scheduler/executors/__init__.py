"""Executors: who they are by the store, what they say, and how they are lost."""
