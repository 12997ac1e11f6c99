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
    addresses: tuple[str, ...]
    """The schedulers, each as ``HOST:PORT``, or as ``unix:PATH`` for a socket; one is used at a time."""
    files: dict[str, str] = field(default_factory=dict)
    """By the names in `ClientSecurity`: the files with the token, with certificates, and with a key."""
    calls: int = 0
    """Calls that were recorded when the attempt began."""
    retries: int = 0
    """How often the program was gone on with after its end."""
    session_id: str = ""
    """The session in which it runs, that of somebody who waits for it; empty: those that it makes."""
    conf: dict[str, str] = field(default_factory=dict)
    """Settings of its sessions, unless it sets them itself."""
    output: int = -1
    """The descriptor to which what is printed goes in frames; -1: it is printed as always."""
    shown: dict[str, int] = field(default_factory=dict)
    """The last call of each task behind which earlier attempts have printed."""

    @property
    def remote(self) -> str:
        """Return the connection string for PySpark."""
        shown = "localhost" if self.addresses[0].startswith("unix:") else self.addresses[0]
        return f"sc://{shown}/;user_id={quote(self.user)}"
