"""``python -m tests.chaos [--minutes 5] [--seed N] [--rolling] [--streaming]``, or ``make chaos MINUTES=5``.

Real processes: three members of etcd, three schedulers behind HAProxy, three executors of Spark, clients that compare
what they get. Exit code 1 when an oracle has found something; then logs and data are kept.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from deploy.parts import StartError
from tests.chaos.cluster import EXECUTORS
from tests.chaos.run import ROOT, Chaos, Options, Summary

_NAMESPACE: Final = "ONAGER_CHAOS_NAMESPACE"
"""Set once this process has a mount namespace of its own (or has learnt that it gets none)."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="decides which faults, and when")
    parser.add_argument("--rolling", action="store_true", help="restart everything in order at half-time")
    parser.add_argument(
        "--from-version",
        type=Path,
        metavar="DIRECTORY",
        help="begin with the schedulers and executors of this checkout (set up, earlier), and upgrade at half-time",
    )
    parser.add_argument("--push", type=int, default=1, choices=range(EXECUTORS + 1), help="executors in push mode")
    parser.add_argument("--streaming", action="store_true", help="queries stream from stage to stage")
    parser.add_argument("--sf", type=float, default=0.01, help="scale factor of the TPC-H data")
    parser.add_argument("--json", type=Path, help="where a summary goes")
    parser.add_argument("--keep", action="store_true", help="keep logs and data of a clean run, too")
    given = parser.parse_args()
    if given.from_version and not (given.from_version / ".venv" / "bin" / "python").exists():
        parser.error(f"--from-version: {given.from_version} is not a checkout that `make setup` has set up")
    return given


def main() -> int:
    given = _arguments()
    has_small_disk = _has_mounts()
    directory = ROOT / "var" / "chaos" / f"run-{given.seed}-{os.getpid()}"
    options = Options(
        given.minutes,
        given.seed,
        directory,
        given.sf,
        is_rolling=given.rolling or given.from_version is not None,
        from_version=given.from_version and given.from_version.absolute(),
        pushed=given.push,
        streams=given.streaming,
        has_small_disk=has_small_disk,
    )
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text}", flush=True)

    say(f"seed {given.seed}: {given.minutes:g} minutes of chaos; logs in {directory}")
    disk = (
        "the exchange is a tmpfs of our own mount namespace" if has_small_disk else "no disk is filled: no mounts here"
    )
    say(disk)
    try:
        summary = asyncio.run(Chaos(options, say).run())
    except StartError as error:
        print(f"make chaos: {error}", file=sys.stderr)
        return 2
    _print(summary)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        report = asdict(summary) | {"clean": summary.is_clean}
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    if not summary.is_clean:
        rolling = " --rolling" if given.rolling else ""
        rolling += f" --from-version {given.from_version}" if given.from_version else ""
        rolling += f" --push {given.push}" + (" --streaming" if given.streaming else "")
        print(f"\nNOT CLEAN. Logs and data: {directory}\nThe same faults again: python -m tests.chaos "
              f"--minutes {given.minutes:g} --seed {given.seed}{rolling}")  # fmt: skip
        return 1
    if not given.keep:
        shutil.rmtree(directory)
    print(f"\nall clean (seed {given.seed})")
    return 0


def _has_mounts() -> bool:
    """Return whether we may mount; enter a mount namespace for that, in which nothing outlives us."""
    inherited = os.environ.get(_NAMESPACE)
    if inherited is not None:
        return inherited == "yes"
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount"]
    is_granted = (
        shutil.which("unshare") is not None
        and not subprocess.run(
            [*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
        ).returncode
    )
    os.environ[_NAMESPACE] = "yes" if is_granted else "no"
    if is_granted:
        sys.stdout.flush()
        os.execvp(unshare[0], [*unshare, sys.executable, *sys.orig_argv[1:]])
    return False


def _print(summary: Summary) -> None:
    jobs = ", ".join(f"{count} {what}" for what, count in summary.jobs.items() if what != "longest_s")
    print(f"\n{len(summary.faults)} faults in {summary.minutes:g} minutes; jobs: {jobs}; "
          f"the longest took {summary.jobs['longest_s']} s\n")  # fmt: skip
    for verdict in summary.verdicts:
        print(f"{'clean    ' if verdict.is_clean else 'NOT CLEAN'}  {verdict.oracle}")
        for finding in verdict.findings:
            print(f"             - {finding}")
        for note in verdict.notes:
            print(f"             ({note})")


if __name__ == "__main__":
    sys.exit(main())
