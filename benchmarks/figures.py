"""What README and docs/performance.md quote, measured in one run: ``make figures``, ``python -m benchmarks.figures``.

Runs benchmarks one after the other, each as the command that is kept with its figures. Writes docs/figures.json after
each of them; what they print goes to var/figures. This takes about an hour on two cores, 20 GB of disk, and HAProxy. It
refuses to begin with changed files or on a busy machine. ``python -m docs.figures`` puts the figures into the pages.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.state.machine import describe

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = ROOT / "docs" / "figures.json"
WRITTEN: Final = ("docs/figures.json", "docs/performance.md", "README.md")
"""Files that a run changes itself."""
MEASUREMENTS: Final[dict[str, str]] = {
    "tpch-0.1": "tpch --sf 0.1",
    "tpch-0.1-cut": "tpch --sf 0.1 --forced",
    "tpch-1": "tpch --sf 1",
    "tpch-1-cut": "tpch --sf 1 --forced",
    "tpch-10": "tpch --sf 10 --queries 3,9,10,13,18 --runs 1",
    "exchange": "exchange --sf 1",
    "streams": "tpch --sf 1 --queries 1,5,9,18,21 --compare-exchanges --runs 1 --slots 4,4",
    "adaptive": "adaptive --runs 1",
    "adaptive-turns": "adaptive_turns",
    "reuse": "reuse --runs 2",
    "sorting": "sorting --sf 1",
    "broadcasts": "broadcasts --most-ratio 10",
    "planning": "planning --runs 40",
    "large-result": "large_result --gb 10",
    "orchestration": "orchestration --modes pull,push --schedulers 1,3 --tasks 100,10000,100000 "
    "--repeats 1 --probes 20 --no-spark",
    "small-jobs": "small_jobs --jobs 400",
    "state": "state --seconds 1",
    "graph": "graph --tasks 100000",
    "takeover": "takeover --tasks 100000",
    "failover": "failover --kills 20",
    "failover-push": "failover --kills 8 --mode push",
    "connect-latency": "connect_latency",
    "connect-kill": "connect_kill --runs 15",
    "connect-session": "connect_session --runs 2",
}
"""The module of each below `benchmarks`, and its options."""
_DROPPED: Final = ("list", "machine")
"""Of a benchmark's JSON: what no document quotes, or what is reported of the whole run."""
_OUT: Final = ROOT / "var" / "figures"
_BUSY_PERCENT: Final = 10.0
"""With so much of all cores in use by others, a machine is not quiet."""
_LOOK_S: Final = 3.0
_LIMIT_S: Final = 2_700.0
_END_S: Final = 60.0


def main() -> int:
    """Measure, and write the file; return 1 if a benchmark failed."""
    options = _options()
    if options.list:
        print("\n".join(f"{name:16} {command(name)}" for name in MEASUREMENTS))
        return 0
    _OUT.mkdir(parents=True, exist_ok=True)
    commit, is_changed = _checkout()
    why_not = unfit(is_changed=is_changed, busy_percent=psutil.cpu_percent(_LOOK_S))
    if why_not and not options.anyway:
        lines = [f"benchmarks.figures: {why}: {what}" for why, what in why_not.items()]
        sys.exit("\n".join((*lines, "benchmarks.figures: --anyway measures all the same")))
    content: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "why_not_quiet": list(why_not),
        "machine": describe(_OUT),
        "measured": {},
    }
    if options.only and FILE.exists():
        content = continued(json.loads(FILE.read_text()), content)
    failed = []
    for name in options.only or MEASUREMENTS:
        print(f"{datetime.now(UTC):%H:%M:%S} {name}: {command(name)}", flush=True)
        content["measured"][name] = found = _measured(name)
        _write(content)
        if "failed" in found:
            failed.append(name)
            print(f"  failed: {found['failed']}; see {_OUT / name}.log", flush=True)
    print(f"{FILE} written" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def command(name: str) -> str:
    """Return what measures *name*, but for ``--json``."""
    return f"python -m benchmarks.{MEASUREMENTS[name]}"


def unfit(*, is_changed: bool, busy_percent: float) -> dict[str, str]:
    """Return why figures of this moment would not be those of a commit on a quiet machine, and what to do."""
    found = {}
    if is_changed:
        found["files differ from the commit"] = "commit them, or put them away (git status, git stash -u)"
    if busy_percent > _BUSY_PERCENT:
        found[f"{busy_percent:.0f} % of the processor is in use"] = "stop what else runs (top)"
    return found


def continued(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the file of an earlier run, for some to be measured again; exit if it is of other code or elsewhere."""
    for what, old, new in (
        ("commit", earlier["commit"], now["commit"]),
        ("processor", earlier["machine"]["processor"], now["machine"]["processor"]),
    ):
        if old != new:
            sys.exit(
                f"benchmarks.figures: the other figures are of {what} {old}, not {new}: all are of one run; "
                "measure all, or remove docs/figures.json"
            )
    return {**earlier, "why_not_quiet": sorted({*earlier["why_not_quiet"], *now["why_not_quiet"]})}


def reduced(report: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a benchmark's JSON."""
    return {key: value for key, value in report.items() if key not in _DROPPED}


def _measured(name: str) -> dict[str, Any]:
    out, log = _OUT / f"{name}.json", _OUT / f"{name}.log"
    out.unlink(missing_ok=True)
    os.sync()  # so that nobody waits for what the one before has written
    found: dict[str, Any] = {
        "command": command(name),
        "begun": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "load": round(os.getloadavg()[0], 2),
        "busy_percent": psutil.cpu_percent(_LOOK_S),
    }
    start_s = time.monotonic()
    with log.open("wb") as sink:
        arguments = [sys.executable, "-m", *command(name).split()[2:], "--json", str(out)]
        why = _run(subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink))
    found["took_s"] = round(time.monotonic() - start_s)
    if not why and not out.exists():
        why = "it wrote no figures"
    return found | ({"failed": why} if why else {"figures": reduced(json.loads(out.read_text()))})


def _run(process: "subprocess.Popen[bytes]") -> str:
    """Wait until a benchmark has ended; return what went wrong."""
    try:
        code = process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it ends what it has started
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return f"no end within {_LIMIT_S:.0f} s"
    return f"exit code {code}" if code else ""


def _write(content: dict[str, Any]) -> None:
    """Write the file, a line for each row."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    text = re.sub(r"[{\[][^{}\[\]]*[}\]]", lambda found: " ".join(found[0].split()), text)
    made = FILE.with_suffix(".tmp")
    made.write_text(text + "\n")
    made.replace(FILE)


def _checkout() -> tuple[str, bool]:
    """Return the commit, and whether files differ from it."""
    asked = ("rev-parse", "HEAD"), ("status", "--porcelain", "--", ".", *(f":!{name}" for name in WRITTEN))
    commit, changes = (
        subprocess.run(["git", *each], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        for each in asked
    )
    return commit, bool(changes)


def _names(text: str) -> Sequence[str]:
    names = text.split(",")
    if unknown := set(names) - set(MEASUREMENTS):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}; see --list")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="print what is measured, with the commands")
    parser.add_argument("--only", type=_names, help="measure these again; the others are kept if of the same commit")
    parser.add_argument("--anyway", action="store_true", help="with changed files and on a busy machine, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
