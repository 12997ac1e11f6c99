"""A cluster that other machines reach: over TLS and with a token, from the command line to the executor's Spark."""

import secrets
import subprocess
import sys

import onager
from onager.protocol.security import ClientSecurity
from tests.integration.security.parts import ROOT, environment
from tests.support.etcd.certificates import Authority
from tests.support.processes.children import end, free_ports, start
from tests.support.waiting import until


def test_a_job_runs_over_tls_with_a_token_and_nobody_logs_it(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("server", "127.0.0.1", "localhost")
    token_file, log = tmp_path / "token", tmp_path / "standalone.log"
    token = secrets.token_hex(32)
    token_file.write_text(f"ann operator {token}\n")
    token_file.chmod(0o600)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "onager", "standalone", "--listen", address.replace("127.0.0.1", "0.0.0.0")]
    command += ["--state-dir", str(tmp_path / "state"), "--slots", "1", "--auth-token-file", str(token_file)]
    command += ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tls-ca", str(authority.cacert)]
    debug = {"ONAGER_SCHEDULER_LOG_LEVEL": "debug", "ONAGER_EXECUTOR_LOG_LEVEL": "debug", "PYTHONPATH": str(ROOT)}
    process = start(command, log, environment() | debug)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            return f"onager is ready at {address}" in log.read_text()

        until(is_ready, "standalone")
        assert f'.remote("sc://{address}/;use_ssl=true;token=…")' in log.read_text()
        flags = ["--scheduler", address, "--tls-ca", str(authority.cacert), "--auth-token-file", str(token_file)]
        done = subprocess.run(
            [sys.executable, "-m", "onager", "submit", *flags, "-o", "csv", "-e", "SELECT 6 * 7 AS answer"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            env=environment(),
        )
        assert (done.returncode, done.stdout.split()) == (0, ["answer", "42"]), done.stderr
        security = ClientSecurity(tls_ca=authority.cacert, auth_token_file=token_file)
        with onager.connect(address, security=security) as client:
            assert [e.state for e in client.executors()] == ["alive"]
    finally:
        end(process)
    assert token not in log.read_text() + done.stderr
