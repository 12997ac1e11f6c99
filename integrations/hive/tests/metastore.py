"""A PostgreSQL, and the service of a Hive metastore on it."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pyspark

JARS = Path(pyspark.__file__).parent / "jars"
JAVA = Path(os.environ["JAVA_HOME"], "bin", "java")
DRIVER = "/usr/share/java/postgresql.jar"
SITE = "<configuration>{}</configuration>"
ENTRY = "<property><name>{}</name><value>{}</value></property>"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], bool], process: subprocess.Popen, log: Path) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < end_s, log.read_text()[-5_000:]  # noqa: PT018
        time.sleep(0.2)


class Postgres:
    """A server with an empty database. It does not run as root, so its files are not in a directory of pytest's."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="onager-hive-"))
        self._user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
        if self._user:
            shutil.chown(self._directory, "postgres", "postgres")
        self._run("initdb", "-D", self._directory / "data", "-U", "hive", "-A", "trust")
        self.port = free_port()
        log = self._directory / "log"
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._directory}"]
        arguments = [word for setting in settings for word in ("-c", setting)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["postgres", "-D", self._directory / "data", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                **self._user,
            )
        until(lambda: is_open(self.port), self._process, log)
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "hive", "metastore")

    def _run(self, *command: object) -> None:
        subprocess.run(
            [str(word) for word in command], check=True, stdout=subprocess.DEVNULL, cwd=self._directory, **self._user
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        shutil.rmtree(self._directory)


class Metastore:
    """The service, which can be killed and started again."""

    def __init__(self, directory: Path, postgres: Postgres) -> None:
        self.port = free_port()
        self.warehouse = directory / "warehouse"
        self._directory = directory
        self._classes = f"{directory}:{JARS}/*:{DRIVER}"
        options = {
            "ConnectionURL": f"jdbc:postgresql://127.0.0.1:{postgres.port}/metastore",
            "ConnectionDriverName": "org.postgresql.Driver",
            "ConnectionUserName": "hive",
            "ConnectionPassword": "",
        }
        others = {
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": self.warehouse.as_uri(),
            "hive.async.log.enabled": "false",  # it needs a jar that PySpark does not have
        }
        site = {f"javax.jdo.option.{name}": value for name, value in options.items()} | others
        (directory / "hive-site.xml").write_text(SITE.format("".join(ENTRY.format(*pair) for pair in site.items())))
        self._make_tables(options)
        self.start()

    def _make_tables(self, options: dict[str, str]) -> None:
        # Made one by one as they are needed, they would wait for each other's locks.
        with ZipFile(next(JARS.glob("hive-metastore-*.jar"))) as jar:
            jar.extract("package.jdo", self._directory)
        persistence = {f"datanucleus.{name}": value for name, value in options.items()} | {
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.identifierFactory": "datanucleus1",
            "datanucleus.connectionPoolingType": "None",
            "datanucleus.rdbms.useLegacyNativeValueStrategy": "true",
        }
        file = self._directory / "persistence.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in persistence.items()))
        tool = "org.datanucleus.store.schema.SchemaTool"
        arguments = ["-create", "-api", "JDO", "-props", file, self._directory / "package.jdo"]
        subprocess.run([JAVA, "-cp", self._classes, tool, *arguments], check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        log = self._directory / "metastore.log"
        service = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [JAVA, "-Xmx512m", "-cp", self._classes, service, "-p", str(self.port)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        until(lambda: is_open(self.port), self._process, log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
