"""The Java kernel as a jar: compiled once per source and Spark version with the compiler that Spark itself bundles."""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from onager.errors import OnagerError
from onager.version import __version__

SOURCES = Path(__file__).parent / "kernel"
_CLASS_FILE_VERSION = 8


def spark_jars() -> list[str]:
    """Return the jars of the installed PySpark."""
    return sorted(str(p) for p in (Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def kernel_jar() -> Path:
    """Return the kernel's jar, compiling it (about three seconds) when this source was never compiled here.

    Processes that start at once may each compile; the jar appears under its name whole, by a rename.
    """
    jar = _cache_directory() / f"kernel-spark{pyspark.__version__}-{_digest()}.jar"
    if not jar.exists():
        with tempfile.TemporaryDirectory(prefix="onager-kernel-") as scratch:
            _compile(_sources(), scratch)
            made = jar.with_name(f".{jar.name}.{os.getpid()}")
            _pack(Path(scratch), made)
            made.replace(jar)
    return jar


@cache
def kernel_version() -> str:
    """Return what tells this kernel from others, under whatever Spark it was compiled."""
    return f"{__version__}-{_digest()[:8]}"


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.java"))


def _digest() -> str:
    digest = hashlib.sha256(pyspark.__version__.encode())
    for source in _sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


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


def _compile(sources: Iterable[Path], into: str) -> None:
    jars = spark_jars()
    py4j_jar = next(jar for jar in jars if Path(jar).name.startswith("py4j"))
    try:
        port, token, process = launch_gateway(
            classpath=os.pathsep.join(jars),
            jarpath=py4j_jar,
            java_path=_java(),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
    except (OSError, ValueError) as e:
        raise OnagerError(f"{_java()} could not be started ({e}): install Java 17 or newer, or set JAVA_HOME") from e
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        compiler = gateway.jvm.org.codehaus.janino.Compiler()
        compiler.setClassPath(_files(gateway, jars))
        compiler.setDestinationDirectory(gateway.jvm.java.io.File(into), False)
        compiler.setTargetVersion(_CLASS_FILE_VERSION)
        compiler.setDebugLines(True)
        compiler.setDebugSource(True)
        compiler.compile(_files(gateway, [str(source) for source in sources]))
    finally:
        gateway.shutdown()
        process.stdin.close()  # without a port it goes on for as long as somebody could write to it
        process.wait()


def _files(gateway: JavaGateway, paths: list[str]) -> Any:
    files = gateway.new_array(gateway.jvm.java.io.File, len(paths))
    for i, path in enumerate(paths):
        files[i] = gateway.jvm.java.io.File(path)
    return files


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _pack(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes).as_posix())
