"""Bugs of watches, and of those who follow them, that others have had; see `planted`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from onager.state_backend import Keyspace
from onager.state_backend.local.backend import LocalBackend
from onager.state_backend.local.hub import WatchHub

_watch = LocalBackend._watch
_hub_watch = WatchHub.watch


def _watch_begins_now() -> AbstractContextManager[Any]:
    """What is written between the listing and the watch is reported by neither (X3: a watch without a revision)."""

    def watch(self: LocalBackend, keyspace: Keyspace, prefix: str, _: int | None) -> Any:
        return _watch(self, keyspace, prefix, None)

    return mock.patch.object(LocalBackend, "_watch", watch)


def _prefix_fits_no_key() -> AbstractContextManager[Any]:
    """Events of heads are looked for under a prefix that their keys do not have (X8: nothing is ever reported)."""

    def watch(self: WatchHub, keyspace: Keyspace, prefix: str, from_revision: int | None) -> Any:
        wrong = f"{keyspace}/{prefix}" if keyspace is Keyspace.JobHeads else prefix
        return _hub_watch(self, keyspace, wrong, from_revision)

    return mock.patch.object(WatchHub, "watch", watch)


OF_WATCHES: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "watch-begins-now": _watch_begins_now,
    "prefix-fits-no-key": _prefix_fits_no_key,
}
