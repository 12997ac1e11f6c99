"""Who may talk to whom, and who may listen: TLS and tokens between clients, executors and schedulers.

Every channel and every port is made here. Plaintext and callers without a name stay on this
machine, unless somebody says that a network is trusted (``--insecure``).
"""

from onager.protocol.security.clients import ClientAccess, ClientSecurity
from onager.protocol.security.places import reached_at
from onager.protocol.security.roles import Role
from onager.protocol.security.servers import ServerAccess, ServerSecurity
from onager.protocol.security.tokens import TokenFile

__all__ = ["ClientAccess", "ClientSecurity", "Role", "ServerAccess", "ServerSecurity", "TokenFile", "reached_at"]
