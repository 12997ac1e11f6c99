"""Connections of Airflow to Onager's schedulers."""

from pathlib import Path
from typing import Any, Final

from airflow.sdk import BaseHook, Connection

import onager
from onager.protocol.security import ClientSecurity

FILES: Final = ("tls_ca", "tls_cert", "tls_key", "auth_token_file")
"""What a connection's extra may name, on the machines of workers and triggerers; see `onager.connect`."""


class OnagerHook(BaseHook):
    """A connection: its host holds one scheduler's address or several, ``host:port`` with commas between them."""

    conn_name_attr = "onager_conn_id"
    default_conn_name = "onager_default"
    conn_type = "onager"
    hook_name = "Onager"

    def __init__(self, onager_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.onager_conn_id = onager_conn_id

    def get_conn(self) -> onager.OnagerClient:
        """Return a client, to be closed by the caller."""
        return client_of(self.get_connection(self.onager_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a scheduler answers, and which ones there are."""
        try:
            with self.get_conn() as client:
                return True, f"schedulers: {', '.join(each.scheduler_id for each in client.schedulers())}"
        except (onager.OnagerError, ValueError) as error:
            return False, str(error)

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow's form shows a connection."""
        return {
            "hidden_fields": ["schema", "login", "password"],
            "relabeling": {"host": "Schedulers"},
            "placeholders": {"host": "host:port,host:port", "extra": '{"tls_ca": "/etc/onager/ca.pem"}'},
        }


def client_of(connection: Connection) -> onager.OnagerClient:
    """Return a client of the schedulers that *connection* names; `ValueError` for an extra that is not known."""
    extra = dict(connection.extra_dejson)
    paths = {name: Path(extra.pop(name)) for name in FILES if extra.get(name)}
    is_insecure = extra.pop("insecure", False)
    if extra or not isinstance(is_insecure, bool):
        known = ", ".join((*FILES, "insecure (true or false)"))
        raise ValueError(
            f"the extra of connection {connection.conn_id} has {', '.join(extra) or 'insecure'}: it may have {known}"
        )
    host = connection.host or ""
    addresses = host if not connection.port else f"{host}:{connection.port}"
    return onager.connect(addresses or None, security=ClientSecurity(**paths, insecure=is_insecure))
