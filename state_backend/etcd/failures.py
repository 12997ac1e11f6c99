"""What a failed call to etcd means.

Source: etcd's api/v3rpc/rpctypes/error.go; the texts are the same from 3.4 on.
"""

from enum import Enum, auto
from typing import Final

import grpc
from aetcd import rpc

from onager.errors import (
    LeaseExpiredError,
    LimitExceededError,
    StateAccessError,
    StateBackendError,
    StateCorruptError,
    StateUnavailableError,
)
from onager.state_backend.etcd.url import EtcdUrl


class Meaning(Enum):
    """The consequence of a failed call."""

    REFUSED = auto()
    """It certainly did nothing, and would do nothing elsewhere."""
    NOT_NOW = auto()
    """It certainly did nothing; another member, or the same in a moment, may do it."""
    TOKEN = auto()
    """It certainly did nothing: the token is no longer known."""
    FULL = auto()
    """The database reached its quota. The write that filled it was done, though etcd refused it."""
    UNKNOWN = auto()
    """It may have been done, or may still be done."""


_NOT_NOW: Final = ("etcdserver: no leader", "etcdserver: too many requests", "etcdserver: not capable")
_TOKEN: Final = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")
_FULL: Final = "etcdserver: mvcc: database space exceeded"
_NOBODY: Final = "etcdserver: user name is empty"
_ACCESS: Final = (
    _NOBODY,
    "etcdserver: authentication failed",
    "etcdserver: permission denied",
    "etcdserver: authentication is not enabled",
)
_LIMITS: Final = {
    "too large": "--max-request-bytes=1572864 (the default) or more",
    "larger than max": "--max-request-bytes=1572864 (the default) or more",
    "too many operations": "--max-txn-ops=128 (the default) or more",
}
_PERHAPS_DONE: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)


def meaning(error: rpc.AioRpcError, *, has_user: bool) -> Meaning:
    """Return the meaning of *error*, for a client with or without a user."""
    text = error.details() or ""
    # Authentication may have been enabled since etcd said that it was off.
    if text.startswith(_TOKEN) or (has_user and text.startswith(_NOBODY)):
        return Meaning.TOKEN
    if text.startswith(_FULL):
        return Meaning.FULL
    if text.startswith(_NOT_NOW):
        return Meaning.NOT_NOW
    if error.code() is grpc.StatusCode.UNIMPLEMENTED or error.code() not in _PERHAPS_DONE:
        return Meaning.REFUSED
    return Meaning.UNKNOWN


def is_compacted(error: rpc.AioRpcError) -> bool:
    """Return whether the requested revision was compacted."""
    return error.code() is grpc.StatusCode.OUT_OF_RANGE and "compacted" in (error.details() or "")


def refusal(error: rpc.AioRpcError, address: str, url: EtcdUrl) -> StateBackendError:
    """Return Onager's error for one whose meaning is `Meaning.REFUSED`."""
    code, text = error.code(), error.details() or ""
    if "requested lease not found" in text:
        return LeaseExpiredError(f"the lease is gone: {text}")
    if text.startswith(_ACCESS) or code in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}:
        return access_refused(text, address, url)
    for words, flag in _LIMITS.items():
        if words in text:
            return LimitExceededError(f"etcd at {address} takes less than Onager sends: {text}; start it with {flag}")
    if code is grpc.StatusCode.DATA_LOSS or "corrupt" in text:
        return StateCorruptError(f"etcd at {address} says that its data is damaged: {text}; restore the member")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return StateUnavailableError(f"{address} is not an etcd of version 3.4 or later: {text}")
    return StateBackendError(f"etcd at {address} refused a request: {code.name}: {text}")


def access_refused(text: str, address: str, url: EtcdUrl) -> StateAccessError:
    """Return the error for a user that is unknown or lacks permission; *text* is etcd's."""
    if url.user is None and _NOBODY in text:
        return StateAccessError(
            f"etcd at {address} wants to know who asks ({text}): give etcd://USER@… and the password "
            "in ONAGER_ETCD_PASSWORD or ?password_file=FILE"
        )
    if "authentication failed" in text:
        return StateAccessError(f"etcd at {address} does not accept user {url.user} with this password: {text}")
    who = "the user that our certificate names" if url.user is None else f"user {url.user}"
    return StateAccessError(
        f"etcd at {address} does not let {who} do that ({text}): its role needs readwrite on the namespace's keys "
        f"(etcdctl role grant-permission ROLE --prefix=true readwrite /{url.namespace}/)"
    )
