"""Settings of the streams between executors, and the port that serves them."""

from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JJavaError

from onager.executor.spark.kernel.execution import Kernel
from onager.protocol.ports import unusable_address
from onager.protocol.security.places import leads_nowhere_else, reached_at


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Where other executors read this executor's streams, and which may."""

    listen: str = "127.0.0.1:0"
    """``host:port``; port 0 takes a free one."""
    advertise: str = ""
    """``host:port`` under which other executors reach it; empty: the address it listens on."""
    token_file: Path | None = None
    """With it, streams are encrypted, and readers and servers must know one of its tokens."""
    insecure: bool = False
    """Whether plaintext may leave this machine."""
    limits: dict[str, int] = field(default_factory=dict)
    """Overrides of the kernel's ``StreamLimits``."""


def open_streams(kernel: Kernel, settings: StreamSettings) -> str:
    """Let *kernel* serve streams, and return the address; raises `InvalidSettingError` if the port cannot be opened."""
    host, _, port = settings.listen.rpartition(":")
    spec = {
        **settings.limits,
        "host": host.strip("[]"),
        "port": int(port),
        "reached": reached_at(settings.listen, 0).rpartition(":")[0],
        "advertise": settings.advertise,
        "token_file": "" if settings.token_file is None else str(settings.token_file),
    }
    try:
        return kernel.open_streams(spec)
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage())
        raise unusable_address("--stream-listen", settings.listen, said) from error


def check_reader(settings: StreamSettings | None, address: str) -> None:
    """Raise `OSError` if streams must not be read from *address*; the job then uses files instead."""
    if settings is None:
        raise OSError("this executor does not use streams")
    if not address:
        raise OSError("the address of a task whose output is streamed is not known")
    if settings.token_file is None and not settings.insecure and not leads_nowhere_else(address):
        raise OSError(
            f"{address} is on another machine, and its streams would not be encrypted; give --auth-token-file "
            "FILE, or give --insecure if the network between is trusted"
        )
