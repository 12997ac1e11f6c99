"""Programs in the simulation: real schedulers and the real client, simulated Spark, hosts, processes and users.

- `plans`: what a drawn program does, as a function of what its calls answer;
- `process`: its process, in which the client of `onager.programs` runs;
- `hosts`: the executors that run programs, and their attempts;
- `spark`: what Spark answers;
- `users`: who submits programs, cancels and retries them;
- `ledger`: what must hold.
"""

WORLDS = 7
"""Of so many worlds one has programs."""


def has_programs(seed: int) -> bool:
    """Return whether there are programs in the world of *seed*, if nothing else speaks against it."""
    return seed % WORLDS == 5
