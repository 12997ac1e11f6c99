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
    """The schedulers, each as ``HOST:PORT``; one is used at a time."""
    files: dict[str, str] = field(default_factory=dict)
    """By the names in `ClientSecurity`: the files with the token, with certificates, and with a key."""

    @property
    def remote(self) -> str:
        """Return the connection string for PySpark."""
        return f"sc://{self.addresses[0]}/;user_id={quote(self.user)}"
