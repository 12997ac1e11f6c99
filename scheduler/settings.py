"""What a scheduler process can be told, by flags and by ``ONAGER_SCHEDULER_…`` variables alike."""

import secrets
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from onager.protocol.limits import DEFAULT_ADDRESS

_HOUR_S = 3600


class SchedulerSettings(BaseSettings):
    """Settings of one scheduler; every field is also the environment variable ``ONAGER_SCHEDULER_<FIELD>``."""

    model_config = SettingsConfigDict(env_prefix="ONAGER_SCHEDULER_", frozen=True, extra="forbid")

    backend: str = "memory:"
    """Where all state lives: ``leveldb:DIR``, or ``memory:`` for tests."""
    listen: str = DEFAULT_ADDRESS
    """``host:port`` to serve on; port 0 takes a free one and says which."""
    exchange_dir: str = "var/exchange"
    """The directory that executors and schedulers share: a path, or a URI that Hadoop understands."""
    namespace: str = "onager"
    """Several clusters may share one store under different namespaces."""
    scheduler_id: str = Field(default_factory=lambda: f"scheduler-{secrets.token_hex(4)}")
    """Who this replica is, in logs and to other replicas."""

    executor_lease_ttl_ms: int = Field(default=6_000, ge=500, le=600_000)
    """An executor that was not heard of for so long is lost."""
    connection_grace_ms: int = Field(default=1_000, ge=100)
    """After an executor's connection broke, how long to wait for word of it before looking closer."""
    poll_wait_max_ms: int = Field(default=30_000, ge=100)
    """The longest that a poll for work may wait, whatever the executor asks for."""
    lost_executor_retention_s: int = Field(default=600, ge=0)
    """How long executors that are gone stay in the listing."""

    result_retention_s: int = Field(default=_HOUR_S, ge=0)
    """How long the result of an ended job can be fetched."""
    record_retention_s: int = Field(default=24 * _HOUR_S, ge=0)
    """How long an ended job is known at all; outlives the repeated submissions of any client."""
    sweep_interval_ms: int = Field(default=5_000, ge=50)
    """How often retention, clean-up and stray work are looked after."""
    heads_interval_ms: int = Field(default=500, ge=50)
    """How often the heads of all jobs are listed, besides being watched."""
    clean_up_repeat_ms: int = Field(default=30_000, ge=100)
    """How long one executor may take for a clean-up before another one is asked."""

    max_launches_per_append: int = Field(default=4_096, ge=1)
    """The most tasks that one append to a job's log hands out."""
    task_max_failures: int = Field(default=4, ge=1)
    """The so-manieth counted failure of one partition fails its job."""
    stage_max_failures: int = Field(default=4, ge=1)
    """Fetch failures in so many attempts of a stage fail its job."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if not (host and colon and port.isdecimal() and int(port) < 2**16):
            raise ValueError("give host:port, such as 127.0.0.1:50050")
        return value

    @field_validator("backend")
    @classmethod
    def _names_a_store(cls, value: str) -> str:
        if ":" not in value:
            raise ValueError("give leveldb:DIR or memory:")
        return value

    @field_validator("namespace")
    @classmethod
    def _can_be_a_key(cls, value: str) -> str:
        if not value or "/" in value or not value.isprintable():
            raise ValueError("a namespace is a printable name without slashes")
        return value

    @property
    def executor_lease_ttl_s(self) -> float:
        """Return the executors' lease in seconds."""
        return self.executor_lease_ttl_ms / 1000
