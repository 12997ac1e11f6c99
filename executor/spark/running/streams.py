"""What an executor is told about the streams between executors, and the port that it opens for them."""

from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JJavaError

from onager.executor.spark.kernel import Kernel
from onager.protocol.ports import unusable_address
from onager.protocol.security.places import leads_nowhere_else, reached_at


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Where others read what tasks of this executor stream, and who may."""

    listen: str = "127.0.0.1:0"
    """``host:port``; port 0 takes a free one."""
    advertise: str = ""
    """``host:port`` under which other executors reach it; empty: where it listens."""
    token_file: Path | None = None
    """With it streams are encrypted, and whoever reads or serves them has to know a token of it."""
    insecure: bool = False
    """Whether plaintext may leave this machine."""
    limits: dict[str, int] = field(default_factory=dict)
    """What the kernel's ``StreamLimits`` takes, where it is not to be the default."""


def open_streams(kernel: Kernel, settings: StreamSettings) -> str:
    """Let *kernel* serve streams, and return where; `InvalidSettingError` when the port cannot be opened."""
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
    """Raise `OSError` where streams may not be read from *address*: the job is run over files then."""
    if settings is None:
        raise OSError("this executor takes no part in streams")
    if not address:
        raise OSError("it is not known where a task runs whose output is streamed")
    if settings.token_file is None and not settings.insecure and not leads_nowhere_else(address):
        raise OSError(
            f"{address} is on another machine, and what it streams would not be encrypted; give --auth-token-file "
            "FILE, or say --insecure if the network between is trusted"
        )
