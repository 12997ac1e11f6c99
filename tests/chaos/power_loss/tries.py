"""Cuts the power at a drawn moment of what was recorded, and looks at what is left."""

import json
import os
import random  # noqa: TID251 seeded
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from onager.executor.exchange import remove_staging, remove_table_folder, take_back
from onager.executor.exchange.publish import Files, carry_out
from onager.manifests import Manifest
from onager.private_paths import NO_PATHS
from onager.sealed_results import DamagedResultError, check_sealed
from tests.chaos.power_loss.disk import Disk, Line, read_record
from tests.chaos.power_loss.recording import Recording

FORGOTTEN: Final[dict[str, tuple[bool, str]]] = {
    "files": (True, ""),
    "files of rows": (True, r"/part-[^/]*$"),
    "files of results": (True, r"\.arrow\.tmp$"),
    "marks": (True, r"/\._SUCCESS-[^/]*$"),
    "notes": (True, r"/\.appended\.json-[^/]*$"),
    "directories": (False, ""),
    "directories of results": (False, r"^/exchange/job-\d+"),
    "staged directories": (False, r"\.onager-job-\d+/[0-9a-f]{16}(/k=\d)?$"),
    "assembled directories": (False, r"/assembled-[0-9a-f]{16}(/k=\d)?$"),
    "staging directories": (False, r"\.onager-job-\d+$"),
    "homes": (False, r"(/out|/out-k|/[tv]-[0-9a-f]{16})/k=\d$|/(out|out-k|v-[0-9a-f]{16}|\.checkpoints/job-\d+)$"),
    "what is above homes": (False, r"^$|/(new|new/csv|new/parquet|warehouse|t-[0-9a-f]{16}|\.checkpoints)$"),
    "homes, when rows are taken back": (False, r"(/out|/out-k/k=\d)$"),
}
"""Syncs that a disk may ignore, by what is not there then: of files or of directories, and their paths.

Not among them: lists of files that were replaced, without which these stay, and no row is lost."""
_TAKEN_BACK: Final = "homes, when rows are taken back"
DAMAGED: Final = Counter({-1: 1})
"""The rows of a dataset with a file that cannot be read."""


class Wrong(Exception):  # noqa: N818 - what was found, not an error of the tries
    """Rows are lost, doubled or damaged, or a job cannot go on."""


class _Fast(Files):
    """Publishes without syncing: the power does not fail again."""

    def write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)

    def sync(self, directories: Iterable[Path]) -> None:
        """Nothing has to survive."""


def rows(places: Sequence[str]) -> Counter[int]:
    """Return the ids of the visible rows in directories; `DAMAGED` if a file cannot be read."""
    found: Counter[int] = Counter()
    for place in places:
        for directory, below, names in os.walk(place):
            below[:] = [name for name in below if not name.startswith((".", "_"))]
            for name in names:
                if not name.startswith((".", "_")):
                    try:
                        found.update(_ids(Path(directory, name)))
                    except (pa.ArrowException, OSError, ValueError, KeyError):
                        return DAMAGED
    return found


def _ids(path: Path) -> list[int]:
    if path.suffix == ".parquet":
        table = pa.parquet.ParquetFile(path).read()
        return [int(each) for each in table.column(0).to_pylist()]
    lines = path.read_text().splitlines()
    if path.suffix == ".csv":
        if lines[:1] not in ([], ["id,k,x"]):
            raise ValueError(lines[0])
        return [int(line.split(",")[0]) for line in lines[1:]]
    return [int(json.loads(line)["id"]) for line in lines]


class _Case:
    """What was to be done at one place, and what had been reported of it when the power failed."""

    def __init__(self, begun: dict[str, Any]) -> None:
        self.name: str = begun["case"]
        self.mode: str = begun["mode"]
        self.old: list[str] = begun["old"]
        self.new: list[str] = begun["new"]
        self.before = _rows_of(begun["before"])
        self.after = _rows_of(begun["after"])
        self.manifest: Manifest | None = None
        self.job = ""
        self.reported: set[str] = set()

    def take(self, reported: dict[str, Any]) -> None:
        self.reported.add(reported["is"])
        if reported["is"] == "staged":
            self.manifest = Manifest.from_bytes(reported["manifest"].encode())
        self.job = reported.get("job", self.job)

    def check(self) -> None:
        """Look at what is left, go on as schedulers would, and look again."""
        if "failed" in self.reported:
            self._check_taken_back()
        elif self.old != self.new:
            self._check_table()
        else:
            self._check_dataset()

    def _check_dataset(self) -> None:
        seen = rows(self.new)
        if "published" in self.reported:
            self._same(seen, self.after, "after it was published")
        elif self.mode == "append":
            if not self.before <= seen <= self.after:
                raise Wrong(f"{self.name}: rows are lost or damaged while others are added: {_shown(seen)}")
        elif seen not in ((Counter(), self.before, self.after) if self.manifest else (self.before,)):
            raise Wrong(f"{self.name}: neither absent, nor the old, nor the new: {_shown(seen)}")
        if self.manifest is not None:
            self._publish_again()
            self._same(rows(self.new), self.after, "when it was published to the end")

    def _check_table(self) -> None:
        if "committed" not in self.reported:
            self._same(rows(self.old), self.before, "before the catalog was changed")
        elif self.manifest is not None:
            self._same(rows(self.new), self.after, "after the catalog was changed")
            remove_table_folder(f"{self.manifest.target}/_replaced", NO_PATHS)
            self._same(rows(self.new), self.after, "when the old files were removed")
            return
        if self.manifest is not None:
            self._publish_again()
            self._same(rows(self.new), self.after, "when it was published to the end")

    def _check_taken_back(self) -> None:
        if "taken back" not in self.reported:
            take_back(self.new[0], self.job)
            remove_staging(self.new[0], self.job)
        self._same(rows(self.new), self.before, "after what the job did was undone")

    def _publish_again(self) -> None:
        if self.manifest is None:
            raise AssertionError(self.name)
        try:
            carry_out(self.manifest, _Fast())
        except Exception as error:
            raise Wrong(f"{self.name}: publishing cannot go on: {error}") from error

    def _same(self, seen: Counter[int], wanted: Counter[int], when: str) -> None:
        if seen != wanted:
            raise Wrong(f"{self.name}: other rows {when}: {_shown(seen)}, not {_shown(wanted)}")


def _rows_of(ranges: list[list[int]]) -> Counter[int]:
    return Counter(each for first, end in ranges for each in range(first, end))


def _shown(seen: Counter[int]) -> str:
    return "a damaged file" if seen == DAMAGED else f"{seen.total()} rows"


def _check_result(reported: dict[str, Any]) -> None:
    try:
        with Path(reported["file"]).open("rb") as file:
            check_sealed(file, reported["checksum"])
    except (OSError, DamagedResultError) as error:
        raise Wrong(f"{reported['case']}: the result that was reported is gone or damaged: {error}") from error


class Tries:
    """Cuts the power while what was recorded happens, as often as wanted."""

    def __init__(self, recording: Recording, forgotten: str = "") -> None:
        """*forgotten*: the disk ignores the syncs that `FORGOTTEN` has so, which has to be found."""
        self._recording = recording
        self._lines = read_record(recording.log)
        if forgotten:
            self._lines = list(_without(self._lines, str(recording.root), forgotten))
        self.reports = [at for at, line in enumerate(self._lines) if line.word == "mark"]
        """The moments when something has just been reported, or begun."""
        self._disk = Disk(recording.root, self._lines, recording.content)
        self._disk.check_complete(recording.finals)

    def cut(self, seed: int, at: int | None = None) -> None:
        """Cut the power at the moment *at*, or one that *seed* draws; `Wrong` if what is left is not whole or absent.

        *seed* draws what is left, too.
        """
        draw = random.Random(seed)
        if at is None:
            at = draw.randrange(len(self._lines))
        self._disk.rebuild(at, draw, self._recording.finals)
        cases: dict[str, _Case] = {}
        places: dict[tuple[str, ...], str] = {}
        for line in self._lines[: at + 1]:
            if line.word != "mark":
                continue
            content = json.loads(line.first)
            if content["is"] == "result":
                _check_result(content)
            elif content["is"] == "begun":
                cases[content["case"]] = _Case(content)
                cases.pop(places.get(tuple(content["old"]), ""), None)  # this one changes the same place
                places[tuple(content["new"])] = content["case"]
            else:
                cases[content["case"]].take(content)
        for case in cases.values():
            case.check()


def _without(lines: Sequence[Line], root: str, forgotten: str) -> Iterable[Line]:
    """Yield *lines* without the syncs that are forgotten."""
    is_file, path = FORGOTTEN[forgotten]
    is_taking_back = False
    for line in lines:
        if line.word == "mark":
            is_taking_back = json.loads(line.first)["is"] == "failed"
        is_one = line.word == "sync" and bool(line.second) == is_file
        is_then = is_taking_back or forgotten != _TAKEN_BACK
        if not (is_one and is_then and re.search(path, line.first.removeprefix(root))):
            yield line
