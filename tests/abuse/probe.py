"""Another client: calls a scheduler continuously, and reports its waits and the scheduler's memory.

``python -m tests.abuse.probe ADDRESS PID`` reads the lines ``begin`` and ``end`` from standard input. A wait counts for
no longer than the scheduler computed meanwhile: whatever else goes on on the machine does not make it slower. A look
through a million numbers shows how fast this machine computes: at the beginning, at the end, and after each wait that
is longer than all before.
"""

import json
import sys
import threading
import time
from pathlib import Path

import grpc
import psutil

from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerStub
from tests.support.waiting import HANGS_S, until

_PAUSE_S = 0.02
_NUMBERS = range(1_000_000)


def look_s() -> float:
    """Return how long this process computes to look through some numbers."""
    began_s = time.thread_time()
    sum(_NUMBERS)
    return time.thread_time() - began_s


class _Caller:
    def __init__(self, address: str, pid: int) -> None:
        self._stub = OnagerSchedulerStub(grpc.insecure_channel(address))
        self._statm = Path(f"/proc/{pid}/statm")
        self._process = psutil.Process(pid)
        self.is_over = threading.Event()
        self.begin()

    def begin(self) -> None:
        self.rss_before = self.rss()
        self.longest_s = self.longest_wall_s = 0.0
        self.peak = self.rss_before
        self.calls = 0
        self.cpu_before_s = self.cpu_s()
        self.look_s = look_s()

    def rss(self) -> int:
        return int(self._statm.read_text().split()[1]) * 4096

    def cpu_s(self) -> float:
        used = self._process.cpu_times()
        return used.user + used.system

    def run(self) -> None:
        while not self.is_over.is_set():
            cpu_s, began_s = self.cpu_s(), time.monotonic()
            self._stub.ListSchedulers(pb.ListSchedulersRequest(), timeout=HANGS_S)
            wall_s, computed_s = time.monotonic() - began_s, self.cpu_s() - cpu_s
            self.longest_wall_s = max(self.longest_wall_s, wall_s)
            if min(wall_s, computed_s) > self.longest_s:
                self.longest_s = min(wall_s, computed_s)
                self.look_s = max(self.look_s, look_s())  # as fast as the machine is now
            self.peak = max(self.peak, self.rss())
            self.calls += 1
            time.sleep(_PAUSE_S)

    def found(self) -> dict[str, float]:
        calls = self.calls
        # The one under way and one more: nothing is left that it would wait for.
        until(lambda: self.calls >= calls + 2)
        return {
            "longest_s": self.longest_s,
            "longest_wall_s": self.longest_wall_s,
            "look_s": max(self.look_s, look_s()),
            "grown": self.rss() - self.rss_before,
            "peak": self.peak - self.rss_before,
            "calls": self.calls,
            "cpu_s": self.cpu_s() - self.cpu_before_s,
        }


def _main(address: str, pid: str) -> None:
    caller = _Caller(address, int(pid))
    thread = threading.Thread(target=caller.run)
    thread.start()
    for line in sys.stdin:
        if line.strip() == "begin":
            caller.begin()
            sys.stdout.write("{}\n")
        else:
            sys.stdout.write(json.dumps(caller.found()) + "\n")
        sys.stdout.flush()
    caller.is_over.set()
    thread.join()


if __name__ == "__main__":
    _main(*sys.argv[1:])
