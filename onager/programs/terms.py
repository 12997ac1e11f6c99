"""What the process of a program is run by."""

from dataclasses import dataclass, field
from urllib.parse import quote


@dataclass(frozen=True)
class Terms:
    """What a program is run by."""

    program_id: str
    attempt: int
    secret: str = field(repr=False)
    seed: str
    user: str
    address: str
    """A scheduler's ``HOST:PORT``."""
    target: str
    """What to connect to, in gRPC's words: the scheduler, or several of which one is used at a time."""
    authorization: str = field(default="", repr=False)
    """What shows the token."""
    ca: str = ""
    """A file with the certificates of authorities; with it, connections use TLS."""
    conf: dict[str, str] = field(default_factory=dict)
    """Settings of its sessions, unless it sets them itself."""
    output: int = -1
    """The descriptor to which what is printed goes in frames; -1: it is printed as always."""
    shown: dict[str, int] = field(default_factory=dict)
    """The last call of each task behind which earlier attempts have printed."""
    cert: str = ""
    key: str = ""
    """Files with the certificate that is shown to schedulers, and its key."""

    @property
    def remote(self) -> str:
        """Return the connection string for PySpark."""
        return f"sc://{self.address}/;user_id={quote(self.user)}"
