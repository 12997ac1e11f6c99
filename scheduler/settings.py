"""The settings of a scheduler process: each is a flag and an ``ONAGER_SCHEDULER_…`` variable."""

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from onager.private_paths import PrivatePaths
from onager.protocol.call_limits import STREAM_SHARE_PERCENT
from onager.protocol.security import ClientSecurity, ServerSecurity
from onager.scheduler.policy.distribution import TaskDistribution
from onager.settings import ProcessSettings
from onager.state_backend.urls import FORMS, state_directory

_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S


class SchedulerSettings(ProcessSettings):
    """Settings of one scheduler; every field is also the environment variable ``ONAGER_SCHEDULER_<FIELD>``."""

    model_config = SettingsConfigDict(env_prefix="ONAGER_SCHEDULER_", frozen=True, extra="forbid")

    backend: str = "memory:"
    """Where all state lives: ``etcd://HOST:PORT[,…][/NAMESPACE][?…]``, ``leveldb:DIR``, or ``memory:`` for tests."""
    metrics_listen: str | None = None
    """``host:port`` to serve metrics on, for Prometheus; without it and `http_listen` none are kept. Name a loopback
    address or a network of your own: anybody who can connect may read them."""
    health_listen: str | None = None
    """``host:port`` to answer gRPC's health protocol on, in plaintext and to anybody: for load balancers and probes."""
    http_listen: str | None = None
    """``host:port`` to serve REST, the page, and metrics on; without it they are not served. It is secured by the same
    certificate and tokens as `listen`."""
    http_names: Annotated[tuple[str, ...], NoDecode] = ()
    """Names under which browsers reach `http_listen` through a proxy, separated by commas, besides its own: only their
    pages may change something, and without tokens no other name is answered."""
    scaler_listen: str | None = None
    """``host:port`` to tell KEDA how many slots are wanted: its external scaler. With `tls_cert` it is encrypted. KEDA
    presents certificates, but no tokens: where other machines reach the address, it has to present one of
    `scaler_tls_client_ca`."""
    scaler_tls_client_ca: Path | None = None
    """Certificates of the authorities that issued KEDA's certificate; by default `tls_client_ca`."""
    outgoing_tls_ca: Path | None = None
    """Certificates of the authorities that issued the certificates of other schedulers and of push executors. With TLS,
    by default those of `tls_client_ca`, else `tls_cert` itself, which suffices if all share that certificate."""
    outgoing_tls_cert: Path | None = None
    """The certificate to show to them; by default `tls_cert` where callers have to show one here."""
    outgoing_tls_key: Path | None = None
    """The key of that certificate; by default `tls_key`."""
    outgoing_auth_token_file: Path | None = None
    """The file whose first line is the token for them; by default `auth_token_file`."""
    exchange_dir: str = "var/exchange"
    """The directory that executors and schedulers share: a path on each of their machines, not in a bucket or HDFS."""
    scheduler_id: str = Field(default_factory=lambda: f"scheduler-{secrets.token_hex(4)}")
    """The id of this scheduler, in logs and for other schedulers."""

    scheduler_lease_ttl_ms: int = Field(default=4_000, ge=500, le=600_000)
    """How long a killed scheduler stays listed."""
    executor_lease_ttl_ms: int = Field(default=6_000, ge=500, le=600_000)
    """An executor that has sent no heartbeat for this long is lost."""
    connection_grace_ms: int = Field(default=1_000, ge=100)
    """How long after an executor's connection broke to wait for a call from it before looking closer."""
    poll_wait_max_ms: int = Field(default=30_000, ge=100)
    """The longest that a poll for work may wait, whatever the executor asks for."""
    lost_executor_retention_s: int = Field(default=600, ge=0)
    """How long executors that are gone stay in the listing."""

    result_retention_s: int = Field(default=_HOUR_S, ge=0)
    """How long the result of an ended job can be fetched."""
    record_retention_s: int = Field(default=24 * _HOUR_S, ge=0)
    """How long an ended job stays known; longer than any client repeats its submission."""
    connect_session_retention_s: int = Field(default=24 * _HOUR_S, ge=60)
    """How long a session of Spark Connect that nobody uses is kept."""
    program_retention_s: int = Field(default=7 * 24 * _HOUR_S, ge=60)
    """How long the calls of a program that has ended are kept."""
    program_store_bytes: int = Field(default=512 * 1024 * 1024, ge=1024 * 1024)
    """What the calls of all programs may take in the store: a share of its quota, which etcd has at 2 GiB by default.
    Beyond it, programs that have ended are forgotten, the oldest end first; if that is not enough, new calls wait."""
    history_retention_s: int = Field(default=24 * _HOUR_S, ge=0)
    """How long the events of an ended job can be read; no longer than its record is kept."""
    history_dir: Path | None = None
    """A directory for the events of jobs whose retention is over: a compressed file for each job. It may be shared by
    schedulers. While a file cannot be written, its job stays in the store."""
    audit_retention_s: int = Field(default=90 * 24 * _HOUR_S, ge=0)
    """How long records of who changed what are kept (``onager audit``)."""
    audit_max_notes: int = Field(default=100_000, ge=0)
    """How many records of everyday acts the audit keeps: submissions, fetches, changes of tables, interrupts, logins,
    refusals. The oldest go first; 0: none are made."""
    sweep_interval_ms: int = Field(default=5_000, ge=50)
    """How often retention, clean-up and stray work are checked."""
    heads_interval_ms: int = Field(default=500, ge=50)
    """How often the heads of all jobs are listed, besides being watched."""
    clean_up_repeat_ms: int = Field(default=30_000, ge=100)
    """How long one executor may take for a clean-up before another one is asked."""

    otel_endpoint: str | None = None
    """``http(s)://HOST:4318``: export each job that has ended as an OpenTelemetry trace, by OTLP over HTTP. Headers and
    certificates are taken from the variables ``OTEL_EXPORTER_OTLP_…``. All schedulers must have the same one."""
    webhook_urls: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses that get a POST when a job has ended, separated by commas: https, or http on this machine. All
    schedulers must have the same ones."""
    webhook_secret_file: Path | None = None
    """The file with the secret that signs deliveries: ``whsec_`` and Base64, or a text of 16 bytes or more."""
    webhook_timeout_s: float = Field(default=10.0, gt=0, le=_HOUR_S)
    """How long a webhook may take to answer before it is tried again."""
    webhook_give_up_s: int = Field(default=_DAY_S, ge=0)
    """How long after a job's end a delivery that fails is tried again."""

    task_distribution: TaskDistribution = TaskDistribution.ROUND_ROBIN
    """Which free slots are filled first: ``bias`` fills one executor before the next, ``round-robin`` takes the
    emptiest, ``locality`` the one that has written most of the stage's input."""
    stream_share_percent: int = Field(default=STREAM_SHARE_PERCENT, ge=1, le=100)
    """How much of the streams of each kind that a scheduler serves (``docs/limits.md``) one client may have: one token,
    or one address where tokens have no names. Give 100 where all clients come through one proxy without tokens."""
    max_launches_per_append: int = Field(default=4_096, ge=1)
    """The most tasks that one append to a job's log launches."""
    session_max_tasks: int = Field(default=0, ge=0, le=1_000_000)
    """The most tasks that jobs of one session have running at a time, unless they set it themselves; 0: any number. It
    applies to jobs that are submitted to this scheduler from then on."""
    forward_timeout_ms: int = Field(default=500, ge=50, le=60_000)
    """How long another scheduler may take to answer what is forwarded to it; after that this one does the work itself.
    Less than 2,000: `onager.scheduler.timing` says why."""
    task_max_failures: int = Field(default=4, ge=1)
    """This many counted failures of one partition fail its job."""
    retry_pauses_s: Annotated[tuple[Annotated[float, Field(ge=0, le=_HOUR_S)], ...], NoDecode] = (0.5, 2.0, 6.0)
    """Seconds for which a partition waits after its first counted failure, its second, and so on, separated by commas;
    the last value holds for all later ones. Empty: it is retried at once. It applies to jobs submitted from then on."""
    stage_max_failures: int = Field(default=4, ge=1)
    """Fetch failures in this many attempts of a stage fail its job."""

    speculation_interval_ms: int = Field(default=250, ge=10)
    """How often stragglers are looked for, in jobs that want second attempts of them (`onager.speculation`), re-plans
    that take too long (`onager.adaptive`), and jobs that want to stream (`onager.exchange`) while no executor can."""

    quarantine_failures: int = Field(default=4, ge=0)
    """An executor is quarantined if it fails this many different tasks that succeed elsewhere, and hardly any of its
    tasks succeed; 0: never."""
    quarantine_window_s: int = Field(default=60, ge=1)
    """The quarantine counts failures and successes of the last so many seconds."""
    quarantine_s: int = Field(default=300, ge=1)
    """How long a quarantine lasts."""

    @field_validator("retry_pauses_s", mode="before")
    @classmethod
    def _are_numbers(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return tuple(float(part) for part in value.split(",") if part.strip())
        except ValueError:
            raise ValueError("give seconds, separated by commas, such as 0.5,2,6") from None

    @field_validator("http_names", mode="before")
    @classmethod
    def _are_names(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = tuple(name for part in value.split(",") if (name := part.strip().lower()))
        if any(set(name) & set("/:@ ") for name in names):
            raise ValueError("give names of hosts alone, separated by commas, such as onager.example.org")
        return names

    @field_validator("otel_endpoint")
    @classmethod
    def _is_endpoint(cls, value: str | None) -> str | None:
        if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("give http://HOST:PORT or https://HOST:PORT")
        return value

    @field_validator("webhook_urls", mode="before")
    @classmethod
    def _are_addresses(cls, value: object) -> object:
        urls = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        for url in urls if isinstance(urls, list | tuple) else ():
            parts = urlsplit(str(url))
            is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if not parts.hostname or parts.scheme not in ("https", "http") or (parts.scheme == "http" and not is_local):
                raise ValueError(f"{url} is no address of a webhook: give https://HOST/PATH, or http on this machine")
        return urls

    @field_validator("backend")
    @classmethod
    def _names_a_store(cls, value: str) -> str:
        if ":" not in value:
            raise ValueError(f"give {FORMS}")
        return value

    @property
    def retry_pauses_ms(self) -> tuple[int, ...]:
        """Return the pauses before retries in milliseconds."""
        return tuple(round(1000 * pause_s) for pause_s in self.retry_pauses_s)

    @property
    def private(self) -> PrivatePaths:
        """Return the files and directories that no job's output may meet."""
        files = (self.auth_token_file, self.outgoing_auth_token_file, self.tls_key, self.outgoing_tls_key)
        secrets = (*files, self.webhook_secret_file)
        return PrivatePaths([self.exchange_dir, state_directory(self.backend)], secrets, shared=(self.exchange_dir,))

    @property
    def scaler_security(self) -> ServerSecurity:
        """Return what the settings say of the port for KEDA."""
        client_ca = self.scaler_tls_client_ca or self.tls_client_ca
        return replace(self.server_security, tls_client_ca=client_ca, auth_token_file=None)

    @property
    def outgoing_security(self) -> ClientSecurity:
        """Return what the settings say of the way to other schedulers and to push executors."""
        is_shown = self.tls_client_ca is not None
        return ClientSecurity(
            tls_ca=self.outgoing_tls_ca or (self.tls_cert and (self.tls_client_ca or self.tls_cert)),
            tls_cert=self.outgoing_tls_cert or (self.tls_cert if is_shown else None),
            tls_key=self.outgoing_tls_key or (self.tls_key if is_shown else None),
            auth_token_file=self.outgoing_auth_token_file or self.auth_token_file,
            insecure=self.insecure,
        )

    @property
    def executor_lease_ttl_s(self) -> float:
        """Return the executors' lease in seconds."""
        return self.executor_lease_ttl_ms / 1000
