"""Whole clusters in one event loop of virtual time: real schedulers, real agents, seeded faults, oracles."""
