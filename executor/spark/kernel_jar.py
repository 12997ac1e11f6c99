"""The kernel's jar: the one in the installed package, or, in a checkout, one compiled from the current sources."""

import fcntl
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pyspark

from onager.errors import OnagerError
from onager.executor.spark.kernel_build import DIGEST, KernelBuildError, build, digest_of
from onager.version import __version__

SOURCES = Path(__file__).resolve().parents[2] / "kernel" / "src" / "main" / "java"
"""The kernel's sources in a checkout; an installed package has none."""
_INSTALLED = Path(__file__).with_name("kernel.jar")


def kernel_jar() -> Path:
    """Return the kernel's jar; in a checkout, compile it (some seconds) unless these sources were compiled before.

    Of processes that start at the same time one compiles; a rename makes the jar appear atomically. Raises
    `OnagerError` when the jar is missing or cannot be compiled.
    """
    if not SOURCES.is_dir():
        if not _INSTALLED.is_file():
            raise OnagerError(
                f"{_INSTALLED} is missing: Onager was installed from its sources without a JDK, or with "
                "ONAGER_WITHOUT_KERNEL; install a JDK 17 or newer, then reinstall Onager"
            )
        return _INSTALLED
    cache_directory = _cache_directory()
    jar = cache_directory / f"kernel-spark{pyspark.__version__}-{_digest()}.jar"
    if jar.exists():
        return jar
    with _locked(cache_directory):
        if not jar.exists():
            try:
                build(SOURCES, jar)
            except KernelBuildError as e:
                raise OnagerError(str(e)) from e
    return jar


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of *directory*, unless its file system has none."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@cache
def kernel_version() -> str:
    """Return the version of this kernel, which does not depend on the Spark that it was compiled for."""
    return f"{__version__}-{_digest()[:8]}"


def _digest() -> str:
    if SOURCES.is_dir():
        return digest_of(SOURCES)
    with zipfile.ZipFile(kernel_jar()) as archive:
        return archive.read(DIGEST).decode()


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118
    for candidate in (Path(base) / "onager", Path(tempfile.gettempdir()) / f"onager-cache-{os.getuid()}"):
        try:
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(candidate, os.W_OK) and candidate.stat().st_uid == os.getuid():
            return candidate
    raise OnagerError(f"neither {base}/onager nor {tempfile.gettempdir()} can be written: set XDG_CACHE_HOME")


if __name__ == "__main__":
    print(kernel_jar())  # noqa: T201 - printing is its work
