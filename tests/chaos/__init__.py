"""Chaos: a whole cluster of real processes under load, faults chosen by a seed, and verdicts on what came of it."""
