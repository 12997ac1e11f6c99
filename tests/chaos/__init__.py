"""Chaos: a whole cluster of real processes under load, faults drawn from a seed, and verdicts on the outcome."""
