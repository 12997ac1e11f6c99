"""Who makes the call that is being served."""

from contextvars import ContextVar
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

PROGRAM_HEADER: Final = "onager-program"
"""Metadata of a call of a program: ``ID/ATTEMPT/SECRET``."""
OWNER_HEADER: Final = "onager-owner-bin"
"""Metadata of a call that an executor passes on for a program: the name of the token that it was submitted with."""
_name: Final[ContextVar[str]] = ContextVar("principal", default="")
_caller_address: Final[ContextVar[str]] = ContextVar("address", default="")


class Caller(NamedTuple):
    """Who makes a call."""

    principal: str = ""
    """The name of its token; empty without tokens, and for a token without a name."""
    address: str = ""
    """Its address, without the port."""

    @property
    def client(self) -> str:
        """Return whose share of something a call takes: a principal's, or an address' where there are no names."""
        return self.principal or self.address


def note_principal(name: str) -> None:
    """Keep *name* for the rest of the current call: gRPC runs interceptors and handler of a call in one task."""
    _name.set(name)


def principal() -> str:
    """Return the name of the token that the current call was made with, or an empty text."""
    return _name.get()


def note_address(context: Any) -> None:
    """Keep the address of the client of *context*, a gRPC context, for the rest of the current call."""
    _caller_address.set(_address(unquote(context.peer())))


def caller() -> Caller:
    """Return who makes the current call, as noted."""
    return Caller(_name.get(), _caller_address.get())


def caller_of(context: Any) -> Caller:
    """Return who makes the current call, whose gRPC context is *context*."""
    return Caller(principal(), _address(unquote(context.peer())))


def _address(address: str) -> str:
    """Return the address in ``ipv4:10.0.0.7:41234``, or in ``ipv6:[::1]:41234``; any other text as it is."""
    kind, _, rest = address.partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else address
