"""How outputs of stages are called that are rows of what a program caches: jobs of its session read them again."""

import re
from typing import Final

_FINGERPRINT: Final = re.compile("cache-([0-9a-f]{32})-[0-9a-f]{64}")


def cache_fingerprint(cache_id: str, digest: str) -> str:
    """Return the fingerprint of the rows of the cached DataFrame *cache_id*; *digest*: of what they were made of."""
    return f"cache-{cache_id}-{digest}"


def cache_of(fingerprint: str) -> str:
    """Return the id of the cached DataFrame of a stage's *fingerprint*; "" if it is no such stage."""
    found = _FINGERPRINT.fullmatch(fingerprint)
    return "" if found is None else found[1]
