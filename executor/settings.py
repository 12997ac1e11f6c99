"""What an executor process can be told, by flags and by ``ONAGER_EXECUTOR_…`` variables alike."""

import os
import socket
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from onager.errors import InvalidSettingError
from onager.ids import MAX_EXECUTOR_ID_LENGTH, ExecutorId, is_executor_id, new_incarnation
from onager.private_paths import PrivatePaths
from onager.protocol.field_limits import MAX_SLOTS
from onager.protocol.limits import DEFAULT_ADDRESS
from onager.protocol.ports import check_address
from onager.protocol.security import ClientSecurity
from onager.protocol.security.places import is_loopback, leads_nowhere_else
from onager.settings import ProcessSettings


class ExecutorSettings(ProcessSettings):
    """Settings of one executor; every field is also the environment variable ``ONAGER_EXECUTOR_<FIELD>``.

    Those of `ProcessSettings` go for the port that it serves in push mode. Besides, `tls_cert` and `tls_key` are shown
    to schedulers that want to see a certificate, the first line of `auth_token_file` is the token that they are sent,
    and with `insecure` plaintext may go to schedulers on other machines.
    """

    model_config = SettingsConfigDict(env_prefix="ONAGER_EXECUTOR_", frozen=True, extra="forbid")

    scheduler: str = DEFAULT_ADDRESS
    """Addresses of schedulers, ``host:port[,host:port]``: any will do; when one fails, the next is tried."""
    slots: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=MAX_SLOTS)
    """How many tasks run at once."""
    exchange_dir: str
    """The directory that all executors and schedulers share: a path, or a URI that Hadoop understands."""
    exchange_shared: bool = False
    """Whether the exchange directory, where it is a path, is one volume that all machines mount there of the Spark
    cluster that runs the tasks (``spark.master=spark://…``). Without this word such an executor does not start."""
    private_paths: tuple[str, ...] = ()
    """Files and directories that jobs neither read nor write, besides the exchange directory and the files named here
    of tokens and keys: the schedulers' state, say, where it lies on this machine."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Settings of the executor's own SparkSession. With ``spark.master=spark://…`` tasks run in that cluster."""
    executor_id: str = ""
    """Who this executor is. Empty: host name and a random part, kept for as long as the process lives.

    Started again under the same id, an executor takes its predecessor's place at once, not after its lease.
    Two live processes must not share an id.
    """
    mode: Literal["pull", "push"] = "pull"
    """How work comes here: asked for, or sent by schedulers, which have to reach this executor for that."""
    listen: str = "127.0.0.1:0"
    """Push mode: ``host:port`` to take work on; port 0 takes a free one."""
    stream_listen: str = "127.0.0.1:0"
    """``host:port`` at which other executors read what tasks here stream; port 0 takes a free one."""
    stream_advertise: str | None = None
    """``host:port`` under which other executors reach that port; where it listens by default."""
    host: str = Field(default_factory=socket.gethostname)
    """Shown to people."""
    heartbeat_interval_ms: int = Field(default=0, ge=0)
    """0: a third of the lease that the scheduler grants."""
    poll_wait_ms: int = Field(default=5_000, ge=100, le=60_000)
    """How long a poll for work may wait at the scheduler."""
    exchange_look_ms: int = Field(default=10_000, ge=100)
    """How often the exchange directory is looked through for its size, and for files that dead processes left there."""
    drain_grace_ms: int = Field(default=30_000, ge=0)
    """How long running tasks may go on after SIGTERM before they are stopped, and what others may read as a stream is
    kept for them."""
    planning_timeout_ms: int = Field(default=3_600_000, ge=0)
    """How long the Python function of a job may take that does not say ``onager.planning.timeout``; 0: as long as it
    wants."""
    blob_cache_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Memory for stage plans and job specifications that may be needed again."""
    tls_ca: Path | None = None
    """Certificates of the authorities that schedulers' certificates are of; with it, connections are encrypted."""

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
        if value and not is_executor_id(value):
            raise ValueError(f"an executor id has at most {MAX_EXECUTOR_ID_LENGTH} printable characters and no slash")
        return value

    @property
    def scheduler_addresses(self) -> tuple[str, ...]:
        """Return the addresses of schedulers in the order in which they were given."""
        return tuple(_split(self.scheduler))

    @property
    def private(self) -> PrivatePaths:
        """Return all that jobs must not touch."""
        return PrivatePaths([self.exchange_dir, self.auth_token_file, self.tls_key, *self.private_paths])

    @property
    def client_security(self) -> ClientSecurity:
        """Return what the settings say of the way to schedulers."""
        return ClientSecurity(
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            auth_token_file=self.auth_token_file,
            insecure=self.insecure,
        )

    @property
    def is_stream_reached(self) -> bool:
        """Whether other executors reach the port for streams: one on loopback is for clusters of one machine."""
        if self.stream_advertise is not None or not is_loopback(self.stream_listen):
            return True
        return all(map(leads_nowhere_else, self.scheduler_addresses))

    def check_stream_port(self) -> None:
        """Raise `InvalidSettingError` when the port for streams may not, or cannot, be opened as it is said."""
        check_address("--stream-listen", self.stream_listen)
        if self.auth_token_file is None and not self.insecure and not is_loopback(self.stream_listen):
            raise InvalidSettingError(
                "--stream-listen",
                self.stream_listen,
                "other machines reach this address, and whoever connects could read what tasks stream, unencrypted; "
                "give --auth-token-file FILE, or listen on 127.0.0.1; or say --insecure if every machine of the "
                "network is trusted",
            )

    def identified(self) -> "ExecutorSettings":
        """Return these settings with an executor id: the one given, or one drawn now."""
        if self.executor_id:
            return self
        drawn = ExecutorId(f"{self.host}-{new_incarnation()[:8]}")
        return self.model_copy(update={"executor_id": drawn})


def _split(addresses: str) -> list[str]:
    return [part.strip() for part in addresses.split(",") if part.strip()]
