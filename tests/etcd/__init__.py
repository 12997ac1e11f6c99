"""Real etcd clusters for tests."""

from tests.etcd.cluster import EtcdCluster, Member, TlsFiles
from tests.etcd.programs import Version, etcd_version, program, shown

__all__ = ["EtcdCluster", "Member", "TlsFiles", "Version", "etcd_version", "program", "shown"]
