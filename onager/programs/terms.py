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
    cert: str = ""
    key: str = ""
    """Files with the certificate that is shown to schedulers, and its key."""

    @property
    def remote(self) -> str:
        """Return the connection string for PySpark."""
        return f"sc://{self.address}/;user_id={quote(self.user)}"
