"""Executors: their records in the store, sessions with them, and their loss."""
