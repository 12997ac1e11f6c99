"""Backup files: JSON lines in one zstd frame, to be read with ``zstd -dc FILE | jq``.

    {"onager_backup": "1.0", "taken": …, "source": …, "revision": …, "records": {"JobHeads": 3, …}, …}
    {"keyspace": "JobHeads", "key": …, "text": …}          a record; "base64" in place of "text" where it is no text
    …
    {"end": true, "records": 1234, "sha256": …}            of all lines before it, line ends included

A file gets its name only when it is complete and on disk; only its owner can read it.
"""

import base64
import binascii
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

import zstandard

from onager.errors import InvalidRequestError, SchemaVersionError, StateCorruptError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import BACKUP_FORMAT
from onager.state_backend import Keyspace
from onager.synced import sync_directory

FORMAT_MAJOR: Final = BACKUP_FORMAT
FORMAT: Final = f"{FORMAT_MAJOR}.0"
_FIRST_FORMAT: Final = 1
"""That of schedulers which name none."""
_LONGEST_LINE: Final = 16 * 1024 * 1024
"""A value of 1.5 MiB is at most six times as long in JSON."""
_LEVEL: Final = 6
_KEYSPACES: Final = frozenset(keyspace.value for keyspace in Keyspace)


class BackupFile(NamedTuple):
    """What the first and last lines of a complete backup say."""

    path: Path
    onager_version: str
    taken: str
    source: str
    revision: int
    counts: dict[str, int]
    left_out: dict[str, int]
    records: int


class BackupWriter:
    """Writes a backup; as a context manager, it leaves nothing behind unless `finish` was called.

    `InvalidRequestError` when the file exists already or its directory cannot be written.
    """

    def __init__(self, path: Path, *, is_overwriting: bool) -> None:
        self._path = path
        if path.is_dir():
            raise InvalidRequestError(f"{path} is a directory: give the name of a file")
        if path.exists() and not is_overwriting:
            raise InvalidRequestError(f"{path} exists: give another name, or --overwrite to replace it")
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)  # mode 0600
        except OSError as error:
            raise _not_written(path, error) from error
        self._file: IO[bytes] = os.fdopen(handle, "wb")
        self._temporary: Path | None = Path(name)
        self._begin()

    def _begin(self) -> None:
        self._sha256 = hashlib.sha256()
        self._records = 0
        self._due = 0
        self._zstd = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(
            self._file, closefd=False
        )

    def write(self, message: pb.StateBackup) -> None:
        """Add the content of a message; a header starts the file again."""
        try:
            if message.HasField("header"):
                self._file.seek(0)
                self._file.truncate()
                self._begin()
                self._header(message.header)
            for record in message.records:
                self._line({"keyspace": record.keyspace, "key": record.key, **_value(record.value)})
                self._records += 1
        except OSError as error:
            raise _not_written(self._path, error) from error

    def finish(self) -> int:
        """Give the file its name, once it is on disk; return its number of records."""
        if self._records != self._due:
            raise StateCorruptError(f"the backup ended after {self._records} of {self._due} records; take it again")
        assert self._temporary is not None
        try:
            self._line({"end": True, "records": self._records, "sha256": self._sha256.hexdigest()})
            self._zstd.close()  # type: ignore[no-untyped-call]
            self._file.flush()
            os.fsync(self._file.fileno())
            self._temporary.replace(self._path)
            self._temporary = None
            sync_directory(self._path.parent)
        except OSError as error:
            raise _not_written(self._path, error) from error
        return self._records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def _header(self, header: pb.StateBackupHeader) -> None:
        if header.format != FORMAT_MAJOR:
            # Those of another release in a file of this format would be restored, and misread.
            what = f"the backup that a scheduler of Onager {header.onager_version} sends"
            raise SchemaVersionError(what, header.format or _FIRST_FORMAT, FORMAT_MAJOR)
        self._due = sum(header.records.values())
        self._line(
            {
                "onager_backup": FORMAT,
                "onager_version": header.onager_version,
                "taken": datetime.fromtimestamp(header.taken_ms / 1000, UTC).isoformat(timespec="milliseconds"),
                "source": header.source,
                "revision": header.revision,
                "records": dict(sorted(header.records.items())),
                "left_out": dict(sorted(header.left_out.items())),
            }
        )

    def _line(self, value: dict[str, Any]) -> None:
        line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
        self._sha256.update(line)
        self._zstd.write(line)


class BackupReader:
    """Reads a backup after `check` has found it complete; the file stays open in between, so that it is the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise InvalidRequestError(f"{path} cannot be read: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def check(self) -> BackupFile:
        """Read the file to its end and return its description.

        `StateCorruptError` when it is no backup, damaged or cut off, `SchemaVersionError` when its format is newer.
        """
        lines = self._lines()
        try:
            number, first = next(lines)
        except StopIteration:
            raise self._damaged(1, "it is empty") from None
        header = self._header(first)
        sha256 = hashlib.sha256(first)
        records = 0
        for number, line in lines:
            value = self._parsed(number, line)
            if value.get("end") is True:
                return self._ended(number, value, sha256.hexdigest(), records, header, lines)
            self._check_keyspace(_record(self, number, value), header)
            sha256.update(line)
            records += 1
        raise self._damaged(number, f"it ends after {records} records, without its last line: it was cut off")

    def records(self) -> Iterator[pb.StateRecord]:
        """Yield the records of a file that was checked."""
        lines = self._lines()
        next(lines)
        for number, line in lines:
            value = self._parsed(number, line)
            if value.get("end") is True:
                return
            yield _record(self, number, value)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        number = 0
        try:
            with (
                zstandard.ZstdDecompressor().stream_reader(self._file, closefd=False) as plain,
                io.BufferedReader(plain, 1024 * 1024) as buffered,
            ):
                while line := buffered.readline(_LONGEST_LINE):
                    number += 1
                    if not line.endswith(b"\n"):
                        raise self._damaged(number, "the line has no end: the file was cut off")
                    yield number, line
        except zstandard.ZstdError as error:
            what = "it is no zstd file" if number == 0 else f"it cannot be decompressed ({error})"
            raise self._damaged(number + 1, what) from error
        except OSError as error:
            raise InvalidRequestError(f"{self._path} cannot be read: {error.strerror or error}") from error

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise self._damaged(number, f"it is no JSON ({error})") from error
        if not isinstance(value, dict):
            raise self._damaged(number, "it is no JSON object")
        return value

    def _header(self, line: bytes) -> dict[str, Any]:
        header = self._parsed(1, line)
        version = header.get("onager_backup")
        if not isinstance(version, str) or not version.partition(".")[0].isdecimal():
            raise self._damaged(1, "it is not a backup of Onager")
        if (major := int(version.partition(".")[0])) != FORMAT_MAJOR:
            raise SchemaVersionError(f"backup {self._path}", major, FORMAT_MAJOR)
        counts, left_out = header.get("records"), header.get("left_out", {})
        is_counted = isinstance(counts, dict) and all(isinstance(count, int) for count in counts.values())
        if not isinstance(header.get("revision"), int) or not is_counted or not isinstance(left_out, dict):
            raise self._damaged(1, "its header is incomplete")
        return header

    def _check_keyspace(self, record: pb.StateRecord, header: dict[str, Any]) -> None:
        if record.keyspace not in _KEYSPACES:
            raise InvalidRequestError(
                f"backup {self._path} has records of keyspace {record.keyspace!r}, which this Onager does not know: "
                f"restore it with Onager {header.get('onager_version', '')} or a newer one. Nothing was restored"
            )

    def _ended(
        self,
        number: int,
        end: dict[str, Any],
        sha256: str,
        records: int,
        header: dict[str, Any],
        rest: Iterator[tuple[int, bytes]],
    ) -> BackupFile:
        if next(rest, None) is not None:
            raise self._damaged(number + 1, "there is more behind its last line")
        due = sum(header["records"].values())
        if end.get("records") != records or due != records:
            counts = f"{records} records, its last line {end.get('records')}, its header {due}"
            raise self._damaged(number, f"it has {counts}")
        if end.get("sha256") != sha256:
            raise self._damaged(number, "its checksum does not match: a line was changed")
        return BackupFile(
            path=self._path,
            onager_version=str(header.get("onager_version", "")),
            taken=str(header.get("taken", "")),
            source=str(header.get("source", "")),
            revision=header["revision"],
            counts=header["records"],
            left_out=header.get("left_out", {}),
            records=records,
        )

    def _damaged(self, number: int, what: str) -> StateCorruptError:
        return StateCorruptError(
            f"backup {self._path} is damaged, line {number}: {what}. Nothing was restored; use another backup"
        )


def _record(reader: BackupReader, number: int, value: dict[str, Any]) -> pb.StateRecord:
    keyspace, key = value.get("keyspace"), value.get("key")
    text, encoded = value.get("text"), value.get("base64")
    if not isinstance(keyspace, str) or not isinstance(key, str) or not key:
        raise reader._damaged(number, "the record has no keyspace or no key")  # noqa: SLF001 - of this module
    try:
        if isinstance(text, str):
            return pb.StateRecord(keyspace=keyspace, key=key, value=text.encode())
        if isinstance(encoded, str):
            return pb.StateRecord(keyspace=keyspace, key=key, value=base64.b64decode(encoded, validate=True))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise reader._damaged(number, f"the value of {keyspace}/{key} cannot be read ({error})") from error  # noqa: SLF001
    raise reader._damaged(number, f"{keyspace}/{key} has no value")  # noqa: SLF001


def _value(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _not_written(path: Path, error: OSError) -> InvalidRequestError:
    return InvalidRequestError(f"the backup cannot be written to {path}: {error.strerror or error}")
