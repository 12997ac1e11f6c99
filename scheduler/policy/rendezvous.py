"""Rendezvous hashing: all that know the same schedulers agree which comes first, without talking to each other.

Each scheduler has its own score for each key. So a scheduler that goes takes no key from another, and one that comes
takes only the keys that it is now first for: one in as many as there are schedulers.

Source: D. Thaler, C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1), 1998.
"""

from collections.abc import Iterable
from hashlib import blake2b


def rank(key: str, scheduler: str, schedulers: Iterable[str]) -> int:
    """Return how many of *schedulers* come before *scheduler* for *key*; *scheduler* need not be among them."""
    others = [other for other in schedulers if other != scheduler]
    if not others:
        return 0
    mine = _score(key, scheduler)
    return sum(_score(key, other) > mine for other in others)


def first(key: str, schedulers: Iterable[str]) -> str:
    """Return which of *schedulers*, at least one, comes first for *key*."""
    return max(schedulers, key=lambda scheduler: _score(key, scheduler))


def _score(key: str, scheduler: str) -> tuple[bytes, str]:
    # The lengths keep ("a", "bc") apart from ("ab", "c").
    name = f"{len(scheduler)}:{scheduler}{key}".encode()
    return blake2b(name, digest_size=8).digest(), scheduler
