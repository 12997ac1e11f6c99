"""Settings that have another name since an earlier release: the old name is refused, with the new one.

An old name that was ignored would do harm: a token file would not count, or a limit would be the default.
"""

from collections.abc import Iterator, Mapping
from typing import Final

RENAMED: Final[Mapping[str, str]] = {
    "ONAGER_SCHEDULER_PEER_AUTH_TOKEN_FILE": "ONAGER_SCHEDULER_OUTGOING_AUTH_TOKEN_FILE",
    "ONAGER_SCHEDULER_PEER_TLS_CA": "ONAGER_SCHEDULER_OUTGOING_TLS_CA",
    "ONAGER_SCHEDULER_PEER_TLS_CERT": "ONAGER_SCHEDULER_OUTGOING_TLS_CERT",
    "ONAGER_SCHEDULER_PEER_TLS_KEY": "ONAGER_SCHEDULER_OUTGOING_TLS_KEY",
    "ONAGER_SCHEDULER_SET_ASIDE_FAILURES": "ONAGER_SCHEDULER_QUARANTINE_FAILURES",
    "ONAGER_SCHEDULER_SET_ASIDE_S": "ONAGER_SCHEDULER_QUARANTINE_S",
    "ONAGER_SCHEDULER_SET_ASIDE_WINDOW_S": "ONAGER_SCHEDULER_QUARANTINE_WINDOW_S",
}
"""The new name of each variable."""


def old_names(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield, for each of *variables* that has an old name, what to do about it."""
    for variable in sorted(variables):
        if new := RENAMED.get(variable.upper()):
            yield f"{variable} is called {new} now: rename it"
