"""Cursors of pages: where the next page begins, and of which listing it is."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final

from onager.scheduler.http import encoding
from onager.scheduler.http.problems import mistaken

_MARK_BYTES: Final = 6
_MAX_PLACE: Final = 2**31 - 1


def make(listing: str, place: str) -> str:
    """Return the cursor for *place* in *listing*."""
    return base64.urlsafe_b64encode(_mark(listing, place) + place.encode()).decode().rstrip("=")


def page_of(listing: str, items: str) -> Callable[[Any], bytes]:
    """Return what encodes a page of *listing*: the field *items* of an answer, and the cursor of the next page."""

    def encode(answer: Any) -> bytes:
        after = getattr(answer, "next", "")
        return encoding.page(getattr(answer, items), make(listing, after) if after else None)

    return encode


def read(listing: str, cursor: str) -> str:
    """Return the place in *listing* that a cursor names, empty for none; an error of the parameter for any other."""
    if not cursor:
        return ""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place = data[_MARK_BYTES:].decode()
    except ValueError:
        raise _refusal() from None
    if data[:_MARK_BYTES] != _mark(listing, place):
        raise _refusal()
    return place


def read_number(listing: str, cursor: str) -> int:
    """Return the place of a cursor in a *listing* by number, 0 for none; errors as in `read`."""
    place = read(listing, cursor) or "0"
    if not (place.isascii() and place.isdecimal() and int(place[:11]) <= _MAX_PLACE):
        raise _refusal()
    return int(place[:11])


def _mark(listing: str, place: str) -> bytes:
    return hashlib.sha256(f"{listing}\0{place}".encode()).digest()[:_MARK_BYTES]


def _refusal() -> Exception:
    return mistaken(
        "query.cursor", "it is not `next` of a page of this listing here: leave it out to begin with the first page"
    )
