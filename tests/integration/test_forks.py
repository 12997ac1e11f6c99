"""Starting processes by fork while calls to schedulers are under way, as PySpark starts its JVM."""

import subprocess
import sys
from pathlib import Path

from tests.support.selection import IS_ALL
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
FORKS = 600 if IS_ALL else 200
SCRIPT = f"""
import onager
import signal
import subprocess
import threading
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

server = grpc.server(futures.ThreadPoolExecutor(4))
health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
is_over = threading.Event()


def call():
    while not is_over.is_set():
        with grpc.insecure_channel(f"127.0.0.1:{{port}}") as channel:
            for _ in range(20):
                health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout={HANGS_S})


callers = [threading.Thread(target=call) for _ in range(3)]
for caller in callers:
    caller.start()
codes = [
    subprocess.run(
        ["true"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), timeout={HANGS_S}
    ).returncode
    for _ in range({FORKS})
]
is_over.set()
for caller in callers:
    caller.join()
server.stop(None).wait()
print("failed:", sum(map(bool, codes)))
"""


def test_a_process_with_open_calls_may_fork():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "failed: 0\n"), done.stderr[-2_000:]
