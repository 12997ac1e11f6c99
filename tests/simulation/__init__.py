"""Whole clusters in one event loop of virtual time: real replicas, real agents, seeded faults, oracles."""
