"""Rendezvous hashing: all that know the same members agree which comes first, without talking to each other.

Each member has its own score for each key. So a member that goes takes no key from another, and one that comes takes
only the keys that it is now first for: one in as many as there are members.

Source: D. Thaler, C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1), 1998.
"""

from collections.abc import Iterable
from hashlib import blake2b


def rank(key: str, member: str, members: Iterable[str]) -> int:
    """Return how many of *members* come before *member* for *key*; *member* need not be among them."""
    others = [other for other in members if other != member]
    if not others:
        return 0
    mine = _score(key, member)
    return sum(_score(key, other) > mine for other in others)


def first(key: str, members: Iterable[str]) -> str:
    """Return which of *members*, at least one, comes first for *key*."""
    return max(members, key=lambda member: _score(key, member))


def _score(key: str, member: str) -> tuple[bytes, str]:
    # The lengths keep ("a", "bc") apart from ("ab", "c").
    name = f"{len(member)}:{member}{key}".encode()
    return blake2b(name, digest_size=8).digest(), member
