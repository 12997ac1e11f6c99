"""Where the files of a job lie in the exchange directory.

- ``{exchange}/{job_id}/{stage_id}/{partition}-{nonce}.rows``: rows for other stages, by bucket
- ``{exchange}/{job_id}/{stage_id}/{partition}-{nonce}.arrow``: a partition of the result, an Arrow IPC stream
- ``{parent of target}/.{name of target}.onager-{job_id}/``: staged files of a sink
"""


def stage_directory(job_id: str, stage_id: int) -> str:
    """Return where a stage's files lie, below the exchange directory."""
    return f"{job_id}/{stage_id}"


def result_file(job_id: str, stage_id: int, partition: int, nonce: str) -> str:
    """Return the name of a result partition's file, below the exchange directory."""
    return f"{stage_directory(job_id, stage_id)}/{partition}-{nonce}.arrow"


def staging_directory(target: str, job_id: str) -> str:
    """Return the directory beside *target* (a path or URI) in which a job's dataset is put together."""
    parent, _, name = target.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.onager-{job_id}"


def has_scheme(path: str) -> bool:
    """Return whether *path* is a URI of something other than the local file system."""
    scheme, separator, _ = path.partition(":/")
    return bool(separator) and "/" not in scheme and scheme != "file"


def local_path(path: str) -> str:
    """Return *path* without the scheme ``file:``."""
    if not path.startswith("file:"):
        return path
    return "/" + path.removeprefix("file:").lstrip("/")


def join(directory: str, name: str) -> str:
    """Return the path of *name* in *directory*, either being a local path or a URI."""
    return f"{directory.rstrip('/')}/{name}"
