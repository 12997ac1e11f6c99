"""The protocol: that of the installed PySpark, with all that nests as bytes."""

from pathlib import Path

from pyspark.sql.connect.proto import base_pb2

import onager.protocol.spark_connect as sc
from onager.protocol.generate import spark_connect
from onager.protocol.security.roles import ROLES


def test_the_copied_descriptors_are_those_of_pyspark():
    """`make protocol` copies them."""
    assert Path(sc.__file__).with_name("spark_connect.binpb").read_bytes() == spark_connect()


def test_every_method_is_served_and_has_roles():
    from onager.scheduler.connect.service import SparkConnectService

    assert set(sc.METHODS) == {m.name for m in base_pb2.DESCRIPTOR.services_by_name["SparkConnectService"].methods}
    for name in sc.METHODS:
        assert hasattr(SparkConnectService, name)
        assert f"/{sc.SERVICE}/{name}" in ROLES


def test_a_plan_of_any_depth_is_passed_on_as_it_came():
    request = base_pb2.ExecutePlanRequest(session_id="s")
    relation = b"\x50\x03"
    for _ in range(5_000):
        relation = b"\x42" + _length(2 + len(relation)) + b"\x0a" + _length(len(relation)) + relation
    found = sc.ExecutePlanRequest.FromString(
        request.SerializeToString()
        + b"\x1a"
        + _length(len(relation) + 1 + len(_length(len(relation))))
        + b"\x0a"
        + _length(len(relation))
        + relation
    )
    assert found.plan.root == relation


def _length(size):
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])
