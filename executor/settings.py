"""The settings of an executor process, given as flags or as ``ONAGER_EXECUTOR_…`` variables."""

import os
import socket
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from onager.errors import InvalidSettingError
from onager.exchange_layout import default_warehouse, has_scheme
from onager.executor.foreign.catalogs import ForeignCatalog, parse_catalogs
from onager.ids import MAX_EXECUTOR_ID_LENGTH, ExecutorId, is_executor_id, new_incarnation, program_host_id
from onager.place_files import EXCHANGE, WAREHOUSE, plain_path, root_name
from onager.private_paths import SYSTEM, PrivatePaths, real_path
from onager.protocol.field_limits import MAX_SLOTS
from onager.protocol.limits import DEFAULT_ADDRESS
from onager.protocol.ports import check_address
from onager.protocol.security import ClientSecurity
from onager.protocol.security.places import is_loopback, leads_nowhere_else
from onager.settings import ProcessSettings

MAX_CHECKED_ROOTS: Final = 64
"""Each has a thread that looks at it, since a disk may hang."""


class ExecutorSettings(ProcessSettings):
    """Settings of one executor; every field is also the environment variable ``ONAGER_EXECUTOR_<FIELD>``.

    The security settings of `ProcessSettings` apply to the port that the executor serves in push mode, and to its
    connections to schedulers: `tls_cert` and `tls_key` identify it to schedulers that require client certificates, the
    first line of `auth_token_file` is the token that it sends, and `insecure` allows plaintext to schedulers on other
    machines.
    """

    model_config = SettingsConfigDict(env_prefix="ONAGER_EXECUTOR_", frozen=True, extra="forbid")

    scheduler: str = DEFAULT_ADDRESS
    """Addresses of schedulers, ``host:port[,host:port]``. One is enough; when it fails, the next is tried."""
    slots: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=MAX_SLOTS)
    """How many tasks run at once."""
    exchange_dir: str
    """The directory that all executors and schedulers share, at a path of each machine; not in a bucket or HDFS."""
    exchange_shared: bool = False
    """Confirms that the exchange directory is a volume that all machines of the Spark cluster mount at this path. With
    ``spark.master=spark://…``, the executor does not start without it."""
    warehouse: str = ""
    """The directory of the tables that are made without a location: a path of a volume that all executors mount. Empty:
    the directory ``warehouse`` beside the exchange directory."""
    catalogs: tuple[str, ...] = ()
    """Catalogs besides Onager's own, each as ``NAME=iceberg:URI?PROPERTY=VALUE&…``, with PyIceberg's properties, or as
    ``NAME=iceberg`` for what PyIceberg is configured to use. All executors need the same."""
    private_paths: tuple[str, ...] = ()
    """Files and directories that jobs may neither read nor write, such as the state of a scheduler on this machine.
    The exchange directory, the directories in which `auth_token_file` and `tls_key` lie, ``/proc``, ``/sys`` and
    ``/dev`` are always private."""
    roots: tuple[str, ...] = ()
    """The only directories whose files jobs may read and write, besides tables in the warehouse. Empty: any that are
    not private where all schedulers are on loopback and there is no `auth_token_file`; elsewhere none."""
    unchecked_roots: tuple[str, ...] = ()
    """Those of `roots` of which executors do not check that all see the same directory: for copies that each machine
    has of its own, and for a link to another volume that is swapped. A lost mount is not noticed there: rows that are
    written go to the disk below it, and reads lack rows."""
    allow: tuple[str, ...] = ()
    """What jobs may use besides files in Spark's own formats and data sources in Python: data sources by name
    (``jdbc``), file systems with a colon (``s3a:``), and ``transform``, the programs of ``TRANSFORM … USING``."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Settings of the executor's own SparkSession. With ``spark.master=spark://…`` tasks run in that cluster."""
    executor_id: str = ""
    """The id of this executor. Empty: the host name and a random part, kept until the process ends.

    An executor that restarts with the same id replaces its predecessor at once, without waiting for the lease to
    expire. Two live processes must not share an id.
    """
    mode: Literal["pull", "push"] = "pull"
    """Whether the executor polls schedulers for tasks, or schedulers push them, for which they must reach it."""
    listen: str = "127.0.0.1:0"
    """Push mode: ``host:port`` on which schedulers reach this executor; port 0 takes a free one."""
    stream_listen: str = "127.0.0.1:0"
    """``host:port`` on which other executors read streams of this executor's tasks; port 0 takes a free one."""
    stream_advertise: str | None = None
    """``host:port`` under which other executors reach that port; by default, the address it listens on."""
    host: str = Field(default_factory=socket.gethostname)
    """The host name that listings show."""
    heartbeat_interval_ms: int = Field(default=0, ge=0)
    """How often the executor sends a heartbeat; 0: every third of the lease that the scheduler grants."""
    poll_wait_ms: int = Field(default=5_000, ge=100, le=60_000)
    """How long a poll for work may wait at the scheduler."""
    exchange_look_ms: int = Field(default=10_000, ge=100)
    """How often the executor scans the exchange directory for its size and for files that dead processes left."""
    drain_grace_ms: int = Field(default=30_000, ge=0)
    """How long, after SIGTERM, running tasks may continue and streams stay readable before they are stopped."""
    planning_timeout_ms: int = Field(default=3_600_000, ge=0)
    """How long planning a job may take, its Python function included, if the job does not set
    ``onager.planning.timeout``; 0: no limit."""
    cancel_grace_ms: int = Field(default=20_000, ge=1_000)
    """How long what was cancelled, or has taken too long, may go on in Spark before the JVM is ended and started again.
    What else was running there is run again, and counts no failure."""
    program_slots: int = Field(default=8, ge=0, le=1000)
    """How many programs of PySpark run beside the tasks, each in a process of its own; they mostly wait."""
    program_memory_bytes: int = Field(default=2 * 1024**3, ge=64 * 1024**2)
    """How much memory the processes of one program may use together; one that uses more is killed, and fails."""
    blob_cache_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Memory for a cache of stage plans and job specifications."""
    tls_ca: Path | None = None
    """Certificates of the authorities that signed the schedulers' certificates; with it, connections use TLS."""

    @field_validator("scheduler")
    @classmethod
    def _has_addresses(cls, value: str) -> str:
        for address in _split(value) or [""]:
            host, colon, port = address.rpartition(":")
            if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16):
                raise ValueError(f"{address!r} is not an address: give host:port, several separated by commas")
        return value

    @field_validator("exchange_dir")
    @classmethod
    def _is_given(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("give a directory that all executors and schedulers can reach")
        return value

    @field_validator("executor_id")
    @classmethod
    def _can_be_a_key(cls, value: str) -> str:
        if value and not is_executor_id(program_host_id(value)):
            most = MAX_EXECUTOR_ID_LENGTH - len(program_host_id(""))
            raise ValueError(f"an executor id has at most {most} printable characters and no slash")
        return value

    @model_validator(mode="after")
    def _roots_can_be_checked(self) -> Self:
        roots, unchecked = ({root_name(root) for root in each} for each in (self.roots, self.unchecked_roots))
        if unchecked - roots:
            strays = [root for root in self.unchecked_roots if root_name(root) not in roots]
            raise ValueError(f"unchecked_roots: {', '.join(strays)}: name directories that are also among the roots")
        checked = {root_name(root) for root in self.roots if not has_scheme(root)} - unchecked
        if len(checked) > MAX_CHECKED_ROOTS:
            raise ValueError(
                f"roots: there are {len(checked)}, and an executor checks at most {MAX_CHECKED_ROOTS}: give "
                "a directory above several of them, or name some in unchecked_roots (ONAGER_EXECUTOR_UNCHECKED_ROOTS)"
            )
        return self

    @property
    def scheduler_addresses(self) -> tuple[str, ...]:
        """Return the addresses of schedulers, in the order given."""
        return tuple(_split(self.scheduler))

    @property
    def warehouse_dir(self) -> str:
        """Return the directory of tables that are made without a location."""
        return self.warehouse.strip() or default_warehouse(self.exchange_dir)

    @property
    def places(self) -> dict[str, str]:
        """Return the paths of the directories that it shares with other machines, by their names."""
        shared = {EXCHANGE: self.exchange_dir, WAREHOUSE: self.warehouse_dir}
        known = {real_path(path) for path in shared.values()} | {"/"}  # which each machine has for itself
        unchecked = {root_name(root) for root in self.unchecked_roots}
        local = (plain_path(root) for root in self.roots if not has_scheme(root) and root_name(root) not in unchecked)
        roots = (root for root in local if real_path(root) not in known and not Path(root).is_file())
        return shared | {root_name(root): root for root in roots}

    @property
    def foreign_catalogs(self) -> tuple[ForeignCatalog, ...]:
        """Return the catalogs besides Onager's own; `InvalidSettingError` for what is none."""
        return parse_catalogs(self.catalogs)

    @property
    def private(self) -> PrivatePaths:
        """Return the paths that jobs must not touch, and those that they may."""
        return PrivatePaths(
            [self.exchange_dir, *self.private_paths, *SYSTEM],
            (self.auth_token_file, self.tls_key),
            (self.exchange_dir, self.warehouse_dir),
            roots=self._open_roots,
            tables=self.warehouse_dir,
        )

    @property
    def _open_roots(self) -> tuple[str, ...] | None:
        is_alone = self.auth_token_file is None and all(map(leads_nowhere_else, self.scheduler_addresses))
        return None if is_alone and not self.roots else self.roots

    @property
    def client_security(self) -> ClientSecurity:
        """Return the security settings of connections to schedulers."""
        return ClientSecurity(
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            auth_token_file=self.auth_token_file,
            insecure=self.insecure,
        )

    @property
    def is_stream_reached(self) -> bool:
        """Whether other executors can reach the stream port; a loopback address serves single-machine clusters only."""
        if self.stream_advertise is not None or not is_loopback(self.stream_listen):
            return True
        return all(map(leads_nowhere_else, self.scheduler_addresses))

    def check_stream_port(self) -> None:
        """Raise `InvalidSettingError` when the stream port's address is invalid, or would be open to other machines."""
        check_address("--stream-listen", self.stream_listen)
        if self.auth_token_file is None and not self.insecure and not is_loopback(self.stream_listen):
            raise InvalidSettingError(
                "--stream-listen",
                self.stream_listen,
                "other machines reach this address, and anyone who connects could read what tasks stream, unencrypted; "
                "give --auth-token-file FILE, or listen on 127.0.0.1, or give --insecure if every machine of the "
                "network is trusted",
            )

    @property
    def for_programs(self) -> "ExecutorSettings":
        """Return the settings of the executor that runs programs beside this one."""
        changes = {
            "executor_id": program_host_id(self.executor_id),
            "slots": self.program_slots,
            "mode": "pull",
            "drain_grace_ms": 0,  # a program goes on elsewhere
        }
        return self.model_copy(update=changes)

    def identified(self) -> "ExecutorSettings":
        """Return these settings with an executor id, generated if none was given."""
        if self.executor_id:
            return self
        drawn = ExecutorId(f"{self.host}-{new_incarnation()[:8]}")
        return self.model_copy(update={"executor_id": drawn})


def _split(addresses: str) -> list[str]:
    return [part.strip() for part in addresses.split(",") if part.strip()]
