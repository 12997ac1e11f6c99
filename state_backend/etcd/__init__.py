"""The etcd adapter: one client of a cluster of one or more members.

`url` says where the cluster is and which user to be, `endpoints` holds the connections, `calls` sends a request until
it is answered and interprets failures, `backend` is the port, `watch`, `locks` and `compaction` are what their names
say.
"""

from onager.state_backend.etcd.backend import EtcdBackend
from onager.state_backend.etcd.url import EtcdUrl
