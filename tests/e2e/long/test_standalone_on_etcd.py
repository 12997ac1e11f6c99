"""``onager standalone`` whose state is in a real etcd, killed and started again."""

import secrets
import signal
import subprocess
import sys

import onager
from tests.support.processes.children import free_port
from tests.support.waiting import HANGS_S, until


def test_it_goes_on_where_it_was_killed(tmp_path, etcd):
    backend = etcd.url(f"alone-{secrets.token_hex(8)}")
    address = f"127.0.0.1:{free_port()}"
    log = tmp_path / "standalone.log"
    command = [sys.executable, "-m", "onager", "standalone", "--backend", backend, "--listen", address]
    command += ["--exchange-dir", str(tmp_path / "exchange"), "--slots", "2"]

    def launch() -> subprocess.Popen:
        with log.open("ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=tmp_path)

    def until_ready(count: int) -> None:
        def is_ready() -> bool:
            assert running.poll() is None, "standalone ended"
            return log.read_text().count("onager is ready") == count

        until(is_ready, "readiness")

    running = launch()
    try:
        until_ready(1)
        with onager.connect(address) as client:
            first = client.sql("SELECT id % 5 AS k, count(*) AS n FROM range(1000) GROUP BY k ORDER BY k")
            answer = [{"k": k, "n": 200} for k in range(5)]
            assert first.to_arrow().to_pylist() == answer
            running.kill()
            running.wait()
            running = launch()
            until_ready(2)
            assert client.job(first.id).to_arrow().to_pylist() == answer
            assert client.sql("SELECT 1 AS one").to_arrow().to_pylist() == [{"one": 1}]
        running.send_signal(signal.SIGINT)
        assert running.wait(HANGS_S) == 0
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
        sys.stderr.write(log.read_text())
    assert f"  state     {backend}\n" in log.read_text()
    assert not (tmp_path / "state").exists()
