"""What the adapters that run inside one process share.

Transactions over an ordered table, the watch hub, and the lease sweeper.
"""

from onager.state_backend.local.backend import Command, LocalBackend
from onager.state_backend.local.engine import Engine, Group
from onager.state_backend.local.hub import WatchHub
from onager.state_backend.local.table import DictTable, Table
