"""Who may connect, and who may listen: TLS and tokens between clients, executors and schedulers.

Every channel and every port is made here. Plaintext and anonymous callers stay on this machine, unless the operator
declares a network trusted (``--insecure``).
"""

from onager.protocol.security.clients import ClientAccess, ClientSecurity
from onager.protocol.security.places import reached_at
from onager.protocol.security.principal import (
    OWNER_HEADER,
    PROGRAM_HEADER,
    Caller,
    caller,
    caller_of,
    note_address,
    principal,
)
from onager.protocol.security.roles import CONNECT, Role
from onager.protocol.security.servers import ServerAccess, ServerSecurity
from onager.protocol.security.tokens import TokenFile
