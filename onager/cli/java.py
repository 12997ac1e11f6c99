"""Finds a Java that Spark can run on: ``python -m onager.cli.java`` prints its home, or advice if there is none.

``--jdk`` requires a compiler, too, which builds the kernel in a checkout.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MINIMUM: Final = 17
"""The oldest Java that Spark 4 runs on. Source: Spark's documentation."""

_USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
)

_ADVICE: Final = (
    "{what}, and none was found (in JAVA_HOME, on PATH, in the usual places). Install it with\n"
    "  Debian, Ubuntu:  sudo apt-get install openjdk-17-{debian}   (or openjdk-21-{debian})\n"
    "  Fedora:          sudo dnf install java-17-openjdk-{fedora}\n"
    "  macOS:           brew install openjdk@17\n"
    "or set JAVA_HOME to one that you have."
)
ADVICE: Final = _ADVICE.format(what=f"Spark needs Java {MINIMUM} or newer", debian="jre-headless", fedora="headless")
JDK_ADVICE: Final = _ADVICE.format(
    what=f"compiling the kernel needs a JDK {MINIMUM} or newer", debian="jdk-headless", fedora="devel"
)


def find_java_home(*, needs_compiler: bool = False) -> Path | None:
    """Return the home of a Java that is new enough: of JAVA_HOME, then on PATH, then in the usual places."""
    return next((home for home in _candidates() if _will_do(home, needs_compiler=needs_compiler)), None)


def _will_do(home: Path, *, needs_compiler: bool) -> bool:
    return (not needs_compiler or (home / "bin" / "javac").is_file()) and (version_of(home) or 0) >= MINIMUM


def version_of(home: Path) -> int | None:
    """Return the feature version (17, 21, …) of the Java at *home*; None if none runs there."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(version.group(1)) if version else None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    for pattern in _USUAL_PLACES:
        yield from (Path(found) for found in sorted(glob.glob(str(Path(pattern).expanduser())), reverse=True))  # noqa: PTH207


def main() -> None:
    """Print the home of a Java that is new enough, or advice and exit code 1."""
    needs_compiler = "--jdk" in sys.argv[1:]
    home = find_java_home(needs_compiler=needs_compiler)
    if home is None:
        print(JDK_ADVICE if needs_compiler else ADVICE, file=sys.stderr)
        raise SystemExit(1)
    print(home)


if __name__ == "__main__":
    main()
