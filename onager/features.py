"""The features that this release has and another one may lack.

During a rolling upgrade, two releases share a cluster. Each scheduler and each executor registers its features. A
scheduler starts nothing that needs a feature which one of them lacks, and refuses a record or a report that does.
"""

from collections.abc import Iterable
from typing import Final

from onager.errors import FeatureMissingError

FEATURES: Final[frozenset[str]] = frozenset()
"""Their names, of lower-case letters, digits and hyphens. All that release 0.2 has goes without a name."""


def shared_features(registered: Iterable[Iterable[str]]) -> frozenset[str]:
    """Return the features that this release has and all others have *registered*."""
    return FEATURES.intersection(*registered)


def check_features(needed: Iterable[str], what: str) -> None:
    """Raise `FeatureMissingError`, naming *what*, if it needs a feature that this release lacks."""
    if missing := sorted(set(needed) - FEATURES):
        raise FeatureMissingError(what, missing)
