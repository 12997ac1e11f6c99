"""Compiles the kernel, a Java module, into a jar: for a wheel, and in a checkout whenever its sources have changed.

Needs the jars of PySpark and a JDK 17 or newer: the ``javac`` of ``JAVA_HOME``, else the one on ``PATH``. Imports
nothing of Onager, since set-up runs it before Onager is installed.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

RELEASE: Final = 17
"""The oldest version of Java that the kernel runs on."""
OPTIONS: Final = (
    *("--release", str(RELEASE), "-g", "-proc:none", "-implicit:none", "-Xmaxerrs", "20"),
    *("-Xlint:all,-path,-classfile", "-Werror"),
)
JVM_OPTIONS: Final = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""The compiler runs for seconds: to make its own code faster would take longer than it saves."""
DIGEST: Final = "META-INF/onager-sources"
"""The entry of the jar that holds the digest of the sources."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class KernelBuildError(Exception):
    """The kernel could not be compiled; the message says why, and what to do."""


def digest_of(sources: Path) -> str:
    """Return a digest of the Java sources below *sources*: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for source in sorted(sources.rglob("*.java")):
        digest.update(source.relative_to(sources).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def build(sources: Path, jar: Path) -> None:
    """Compile the Java sources below *sources* into *jar*, which appears atomically; raises `KernelBuildError`."""
    with tempfile.TemporaryDirectory(prefix="onager-kernel-") as scratch:
        classes = Path(scratch, "classes")
        arguments = Path(scratch, "arguments")
        lines = [*OPTIONS, "-classpath", os.pathsep.join(_spark_jars()), "-d", str(classes)]
        lines += [str(source) for source in sorted(sources.rglob("*.java"))]
        arguments.write_text("\n".join(f'"{line}"' for line in lines))
        _run(_javac(), f"@{arguments}")
        made = jar.with_name(f".{jar.name}.{os.getpid()}")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, DIGEST, digest_of(sources).encode())
            for path in sorted(classes.rglob("*.class")):
                _add(archive, path.relative_to(classes).as_posix(), path.read_bytes())
        made.replace(jar)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add an entry with a fixed time, so that builds are reproducible."""
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)


def _spark_jars() -> list[str]:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise KernelBuildError("the kernel is compiled against Spark, and PySpark is not installed")
    return sorted(str(jar) for jar in (Path(pyspark.origin).parent / "jars").glob("*.jar"))


def find_javac() -> str | None:
    """Return the compiler of ``JAVA_HOME``, else the one on ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    mine = Path(home, "bin", "javac") if home else None
    return str(mine) if mine is not None and mine.is_file() else shutil.which("javac")


def _javac() -> str:
    found = find_javac()
    if found is None:
        home = os.environ.get("JAVA_HOME")
        raise KernelBuildError(
            f"the kernel is compiled with javac, and there is none in JAVA_HOME ({home or 'not set'}) or on PATH: "
            f"install a JDK {RELEASE} or newer (make setup does), and let JAVA_HOME name it"
        )
    return found


def _run(javac: str, arguments: str) -> None:
    try:
        done = subprocess.run([javac, *JVM_OPTIONS, arguments], capture_output=True, text=True, check=False)  # noqa: S603 - the JDK's
    except OSError as e:
        raise KernelBuildError(f"{javac} could not be started ({e}): install a JDK {RELEASE} or newer") from e
    if done.returncode:
        raise KernelBuildError(f"{javac} could not compile the kernel:\n{done.stdout}{done.stderr}".rstrip())
