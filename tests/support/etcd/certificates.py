"""Certificates for tests, made by authorities of their own."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme


class Pair(NamedTuple):
    """A certificate and its key, in PEM files."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates into *directory*; *name* tells its files from those of others."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.cacert = directory / f"{name}.pem"
        self._directory = directory
        self._name = name
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(str(self.cacert))

    def issue(self, name: str, *identities: str, is_expired: bool = False, user: str | None = None) -> Pair:
        """Return a certificate for hosts or addresses, yesterday's if it *is_expired*; *user* is its common name."""
        now = datetime.now(UTC)
        not_before, not_after = (now - timedelta(days=2), now - timedelta(days=1)) if is_expired else (None, None)
        issued = self._ca.issue_cert(
            *(identities or ("client@example.invalid",)), common_name=user, not_before=not_before, not_after=not_after
        )
        pair = Pair(self._directory / f"{self._name}-{name}.pem", self._directory / f"{self._name}-{name}.key")
        pair.cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(pair.key))
        return pair
