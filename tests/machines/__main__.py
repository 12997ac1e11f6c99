"""Three machines under faults, and clients whose answers are known.

python -m tests.machines [--few] [--only TEXT] [--ahead NUMBER=SECONDS] [--json FILE]

Each machine has its own network, mounts and processes, with a member of etcd, a scheduler and an executor, and the
share is mounted on it. The clock of the scheduler on machine 2 is two hours ahead, by default. Clients outside submit
jobs, write a table and datasets, and use Spark Connect through HAProxy beside them. Faults come one after the other.
At the end nothing may have been wrong, lost or doubled, and the longest waits are printed: by how much a request took
longer than usual (the median of what that client asked before the first fault).
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

from tests.machines.clients import Client, Connect, Datasets, Jobs, Table
from tests.machines.cluster import PROXY, Cluster, java_home
from tests.machines.faults import ALL, FEW, MAX_CONNECT_S, MAX_OWN_S, Fault
from tests.machines.network import enter, see_to_fuse
from tests.support.waiting import HANGS_S

_QUIET_REQUESTS: Final = 5
_AFTER_REQUESTS: Final = 2
_PAUSE_S: Final = 0.3
_PAUSE_OF_FEW_S: Final = 1.5
"""In the gate, other tests need the processors, too."""


def main(arguments: list[str] | None = None) -> int:
    """Run all faults; return 1 when something was wrong, or somebody waited for too long."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    parser.add_argument("--few", action="store_true", help="two short faults, as in the gate")
    parser.add_argument("--only", default="", help="only faults whose name contains this")
    parser.add_argument("--ahead", default="2=7200", help="whose scheduler's clock is ahead by how many seconds")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args(arguments)
    enter("tests.machines", arguments)
    java_home()
    faults = [fault for fault in (FEW if options.few else ALL) if options.only in fault.name]
    number, _, seconds = options.ahead.partition("=")
    directory = Path(tempfile.mkdtemp(prefix="onager-machines-"))
    can_be_sick = any(fault.is_sickness for fault in faults)
    if can_be_sick:
        see_to_fuse()
    ahead_s = {int(number): int(seconds)} if seconds else {}
    executors = (2, 3) if options.few else (1, 2, 3)
    cluster = Cluster(directory, ahead_s=ahead_s, can_be_sick=can_be_sick, executors=executors)
    try:
        cluster.start()
        report = run(cluster, faults, has_limits=not options.few)
    finally:
        cluster.stop()
    print(as_text(report))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if report["findings"]:
        print(f"logs: {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def run(cluster: Cluster, faults: list[Fault], *, has_limits: bool) -> dict[str, Any]:
    """Run *faults* under clients; return what was found, and how long clients waited.

    With *has_limits* it is a finding that one waited for too long: on a machine that does nothing else.
    """
    folder = next(iter(cluster.machines.values())).share
    addresses = cluster.addresses()
    own = [Jobs(addresses), Table(addresses), Datasets(addresses, str(folder))]
    names = ("jobs", "table", "datasets", "connect")
    asking = [*own, Connect(PROXY, cluster.directory)]
    pause_s = _PAUSE_S if has_limits else _PAUSE_OF_FEW_S
    clients = [Client(name, ask, pause_s) for name, ask in zip(names, asking, strict=True)]
    for client in clients:
        client.start()
    began_s = time.monotonic()
    _await_answers(clients, began_s, _QUIET_REQUESTS if has_limits else 1)
    usual_s = {c.name: statistics.median(r.took_s for r in c.requests) for c in clients}
    report: dict[str, Any] = {"usual_s": {n: round(s, 2) for n, s in usual_s.items()}, "faults": [], "findings": []}
    for fault in faults:
        if fault.is_sickness:
            for each in own:
                each.turn_to(cluster.addresses(cluster.behind_proxy()))
            _await_answers(clients, time.monotonic(), _AFTER_REQUESTS)
        at_s, lines = time.monotonic(), cluster.lines()
        print(f"{fault.name}, for {fault.seconds:g} s", file=sys.stderr, flush=True)
        with fault.begin(cluster):
            time.sleep(fault.seconds)
            if fault.shows:
                _await_refusal(cluster, fault)
            if fault.is_sickness:
                report["findings"] += [f"{fault.name}: {line}" for line in cluster.lost_leases(lines)]
        cluster.await_whole(HANGS_S)
        _await_answers(clients, time.monotonic(), _AFTER_REQUESTS)
        report["faults"].append(_waits(fault, clients, at_s, usual_s, report["findings"] if has_limits else []))
        print(f"longest waits: {report['faults'][-1]['longest_wait_s']}", file=sys.stderr, flush=True)
    for client in clients:
        client.stop()
    wrong = [f"{r.client}: {r.wrong}" for client in clients for r in client.requests if r.wrong]
    report["findings"] += wrong
    report["requests"] = {client.name: len(client.requests) for client in clients}
    return report


def _await_refusal(cluster: Cluster, fault: Fault) -> None:
    end_s = time.monotonic() + HANGS_S
    while (state := cluster.states().get(fault.shows)) != "no_place":  # it may still be starting
        if time.monotonic() > end_s:
            raise TimeoutError(f"{fault.name}: {fault.shows} is listed as {state} after {HANGS_S:g} s")
        time.sleep(0.5)


def _await_answers(clients: list[Client], since_s: float, count: int) -> None:
    end_s = time.monotonic() + HANGS_S
    while any(client.answered_since(since_s) < count for client in clients):
        if time.monotonic() > end_s:
            late = [client.name for client in clients if client.answered_since(since_s) < count]
            raise TimeoutError(f"no answers for {late} within {HANGS_S:g} s")
        time.sleep(0.2)


def _waits(
    fault: Fault, clients: list[Client], at_s: float, usual_s: dict[str, float], findings: list[str]
) -> dict[str, Any]:
    longest: dict[str, float] = {}
    for client in clients:
        took = [r.took_s for r in client.requests if r.began_s + r.took_s > at_s]
        longest[client.name] = round(max(0.0, max(took) - usual_s[client.name]), 1)
        most_s = MAX_CONNECT_S if client.name == "connect" else MAX_OWN_S
        if longest[client.name] > most_s:
            findings.append(f"{fault.name}: {client.name} waited {longest[client.name]} s, more than {most_s:g}")
    return {"fault": fault.name, "seconds": fault.seconds, "longest_wait_s": longest}


def as_text(report: dict[str, Any]) -> str:
    """Return the report as text."""
    names = list(report["usual_s"])
    lines = [f"{'longest wait beyond usual, s':42}" + "".join(f"{name:>10}" for name in names)]
    lines += [f"{'(usual)':42}" + "".join(f"{report['usual_s'][name]:>10}" for name in names)]
    for row in report["faults"]:
        name = f"{row['fault']}, {row['seconds']:g} s"
        lines.append(f"{name:42}" + "".join(f"{row['longest_wait_s'][n]:>10}" for n in names))
    lines.append(f"requests: {report['requests']}")
    lines += [f"FINDING {finding}" for finding in report["findings"]] or ["nothing was wrong, lost or doubled"]
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        code = main()
    except Exception:  # noqa: BLE001 - it is reported, and ends this all the same
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # clients of machines that are gone do not end by themselves
