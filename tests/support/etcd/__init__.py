"""Real etcd clusters for tests."""

from tests.support.etcd.cluster import EtcdCluster, Member, TlsFiles
from tests.support.etcd.programs import Version, etcd_version, program, shown

__all__ = ["EtcdCluster", "Member", "TlsFiles", "Version", "etcd_version", "program", "shown"]
