"""Where the files of a job lie in the exchange directory.

- ``{exchange}/{job_id}/{stage_id}/{partition}-{nonce}.rows``: rows for other stages, by bucket
- ``{exchange}/{job_id}/{stage_id}/{partition}-{nonce}.arrow``: a partition of the result, an Arrow IPC stream
- ``{exchange}/{job_id}/{stage_id}/.{name}.{incarnation}.tmp``: a file that this life of an executor is writing
- ``{exchange}/.{job_id}.gone/``: what is being removed
- ``{exchange}/.connect/{digest}``: a file that was added to a session of Spark Connect
- ``{exchange}/.connect/{digest}.unpacked/``: an archive of those, unpacked
- ``{exchange}/.connect/{digest of files}/``: links to these, by the names under which a program's Python finds them
- ``{exchange}/.checkpoints/{job_id}/``: the rows of a checkpoint, a dataset of Parquet files
- ``{exchange}/.programs/{folder}/{nonce}``: what came of a call of a program, where that is large
- ``{exchange}/.programs/{folder}/output/``: what a program printed (`onager.program_output`)
- ``{exchange}/.programs/{folder}/files/{digest}``: a large file that a program was handed in with
- ``{parent of target}/.{name of target}.onager-{job_id}/``: staged files of a sink
"""

import re
import unicodedata
from pathlib import Path
from urllib.parse import quote, unquote

from onager.errors import InvalidSettingError
from onager.ids import is_digest, is_job_id, is_life

PROBE = ".onager-probe-"
"""The prefix of files that only test whether the exchange directory is usable."""

CONNECT_ARTIFACTS = ".connect"
"""The folder of the files that were added to sessions of Spark Connect."""

CONNECT_UNPACKED = ".unpacked"
"""How the name of an unpacked archive's folder ends."""
CHECKPOINTS = ".checkpoints"
"""The folder of the checkpoints of sessions of Spark Connect."""
PROGRAMS = ".programs"
"""The folder of what came of calls of programs."""

SUCCESS = "_SUCCESS"
"""The file in a dataset that says that it is whole."""

_QUOTED = frozenset({"Zs", "Zl", "Zp", "Cc"})
"""The categories of characters beyond ASCII that Java quotes: spaces and controls."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WRITER = re.compile(r"\.([0-9a-f]{16})\.tmp")


def stage_directory(job_id: str, stage_id: int) -> str:
    """Return the directory of a stage's files, below the exchange directory; `ValueError` for an invalid job id."""
    if not is_job_id(job_id):
        raise ValueError(f"{job_id!r} is no job id")
    return f"{job_id}/{stage_id}"


def kept_stage(stage_id: int) -> str:
    """Return the name, below a job's directory, that stands for all files of a stage where it is said what to keep."""
    return f"{stage_id}/"


def result_file(job_id: str, stage_id: int, partition: int, nonce: str) -> str:
    """Return a result partition's file, below the exchange directory; `ValueError` for an invalid name."""
    if not is_life(nonce):
        raise ValueError(f"{nonce!r} is not the name of an execution")
    return f"{stage_directory(job_id, stage_id)}/{result_name(partition, nonce)}"


def result_name(partition: int, nonce: str) -> str:
    """Return the name of a result partition's file, below its stage's directory."""
    return f"{partition}-{nonce}.arrow"


def connect_artifact(digest: str) -> str:
    """Return the file of an artifact of Spark Connect, below the exchange directory; `ValueError` for no digest."""
    if not is_digest(digest):
        raise ValueError(f"{digest!r} is no digest")
    return f"{CONNECT_ARTIFACTS}/{digest}"


def connect_unpacked(digest: str) -> str:
    """Return the folder of an unpacked archive, below the exchange directory; `ValueError` for no digest."""
    return f"{connect_artifact(digest)}{CONNECT_UNPACKED}"


def checkpoint(job_id: str) -> str:
    """Return the dataset of the checkpoint that a job makes, below the exchange directory; `ValueError` for no job."""
    if not is_job_id(job_id):
        raise ValueError(f"{job_id!r} is no job id")
    return f"{CHECKPOINTS}/{job_id}"


def sent_file(folder: str, digest: str) -> str:
    """Return where a program has a large file that it was handed in with, below the exchange directory."""
    if not (is_life(folder) and is_digest(digest)):
        raise ValueError(f"{folder!r} and {digest!r} are no folder of a program and no digest")
    return f"{PROGRAMS}/{folder}/files/{digest}"


def program_output(folder: str) -> str:
    """Return where what a program printed is, below the exchange directory; *folder* is that of its files."""
    if not is_life(folder):
        raise ValueError(f"{folder!r} is no folder of a program")
    return f"{PROGRAMS}/{folder}/output"


def is_checkpoint(path: str) -> bool:
    """Return whether *path* may be that of a checkpoint."""
    return path.split("/")[-2:-1] == [CHECKPOINTS]


def writer_of(name: str) -> str | None:
    """Return the incarnation that writes, or wrote, the unfinished file *name*; None for any other file."""
    found = _WRITER.search(name)
    return found[1] if found is not None and found.end() == len(name) else None


def retired_name(job_id: str) -> str:
    """Return the name of a job's directory once it is being removed."""
    return f".{job_id}.gone"


def job_of(name: str) -> str:
    """Return the job that a directory *name* in the exchange directory stands for, retired or not, if for any."""
    return name[1:].removesuffix(".gone") if name.startswith(".") and name.endswith(".gone") else name


def is_staged_name(name: str) -> bool:
    """Return whether *name* can be that of a staged file, that is, stays below the staging directory."""
    parts = name.split("/")
    return all(part not in ("", ".", "..") for part in parts) and not _CONTROL.search(name)


def staging_directory(target: str, job_id: str) -> str:
    """Return the directory beside *target* (a path or URI) in which a job's dataset is assembled."""
    if not is_job_id(job_id):
        raise ValueError(f"{job_id!r} is no job id")
    parent, _, name = target.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.onager-{job_id}"


def default_warehouse(exchange: str) -> str:
    """Return the directory ``warehouse`` beside the exchange directory."""
    return str(Path(local_path(exchange)).absolute().parent / "warehouse")


def has_scheme(path: str) -> bool:
    """Return whether *path* is a URI of something other than the local file system."""
    scheme, separator, _ = path.partition(":/")
    return bool(separator) and "/" not in scheme and scheme != "file"


def check_local(flag: str, path: str) -> None:
    """Raise `InvalidSettingError`, naming *flag*, unless *path* is in the local file system."""
    if has_scheme(path):
        raise InvalidSettingError(
            flag,
            path,
            "this is not a path of this machine: results, artifacts and checkpoints cannot be read from a bucket or "
            "HDFS, and datasets cannot be published there; give a directory that all schedulers and executors mount, "
            "as a path",
        )


def local_path(path: str) -> str:
    """Return *path* without the scheme ``file:``."""
    if not path.startswith("file:"):
        return path
    return "/" + path.removeprefix("file:").lstrip("/")


def location_path(location: str) -> str:
    """Return the path of a location in the catalog, which is a URI, without the scheme ``file:``."""
    return unquote(local_path(location))


def is_below(location: str, folder: str) -> bool:
    """Return whether a place is in a folder; both are locations in the catalog."""
    path = location_path(location)
    return path.startswith(f"{location_path(folder).rstrip('/')}/") and ".." not in path.split("/")


def path_location(path: str) -> str:
    """Return a local path, with the scheme ``file:`` or without, as a location in the catalog: as Java makes URIs.

    Spark compares them as text, so that not one character may be quoted that Java leaves as it is.
    """
    return f"file:{uri_quoted(local_path(path).rstrip('/'))}"


def uri_quoted(path: str) -> str:
    """Return *path* with everything quoted that cannot be in the path of a URI of Java's."""
    return "".join(char if _is_plain(char) else quote(char) for char in path)


def _is_plain(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char in "_-!.~'()*,;:$&+=@/"
    return unicodedata.category(char) not in _QUOTED


def join(directory: str, name: str) -> str:
    """Return the path of *name* in *directory*, either being a local path or a URI."""
    return f"{directory.rstrip('/')}/{name}"
