"""Shared directories as an executor sees them once schedulers have judged its marks."""

from collections.abc import Collection, Mapping
from pathlib import Path

from onager.clock import Clock, ManualClock
from onager.executor.exchange.seen_places import SeenPlaces
from onager.ids import new_incarnation, new_nonce
from onager.place_files import make_id
from onager.protocol import onager_pb2 as pb


def judged(paths: Mapping[str, Path], *, refused: Collection[str] = (), clock: Clock | None = None) -> SeenPlaces:
    """Return places of which all are seen but those *refused*."""
    named = {name: str(path) for name, path in paths.items()}
    places = SeenPlaces(named, new_incarnation(), clock or ManualClock())
    ids = {name: new_nonce() for name in paths}
    for name in paths.keys() - set(refused):
        paths[name].mkdir(parents=True, exist_ok=True)
        make_id(str(paths[name]), ids[name])
    places.take(pb.PlaceVerdict(name=name, id=each) for name, each in ids.items())
    places.look()
    places.take(
        pb.PlaceVerdict(name=name, id=each, why="it is another one")
        if name in refused
        else pb.PlaceVerdict(name=name, id=each, admitted=True, generation=1)
        for name, each in ids.items()
    )
    return places
