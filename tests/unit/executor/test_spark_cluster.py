"""Checks before the start of an executor whose master is a cluster."""

import socket

import pytest

from onager.errors import InvalidSettingError
from onager.executor.spark import cluster
from onager.executor.spark.kernel.classes import CLUSTER_PLUGIN
from onager.executor.spark.session import start_session
from onager.executor.work import ClusterAwayError

MASTER = "spark://127.0.0.1:7077"


def test_which_masters_are_clusters():
    assert not any(map(cluster.is_cluster, ("local", "local[2]", "local[*]", "local[2,4]")))
    assert all(map(cluster.is_cluster, (MASTER, "yarn", "k8s://https://h:1", "local-cluster[1,1,1024]")))


@pytest.mark.parametrize("path", ["/tmp/exchange", "file:///tmp/exchange"])
def test_a_cluster_is_refused_a_directory_that_nobody_says_is_shared(path):
    with pytest.raises(InvalidSettingError, match=r"--exchange-dir.*directory of this machine.*--exchange-shared"):
        start_session(1, {"spark.master": MASTER}, path)
    cluster.check_exchange(MASTER, path, is_shared=True)


def test_a_master_that_does_not_listen_is_reported_before_spark_starts():
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterAwayError, match=f"no master answers at {master}"):
            start_session(1, {"spark.master": master}, "/tmp/exchange", exchange_shared=True)


def test_one_master_of_several_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        cluster.await_master(f"spark://127.0.0.1:{taken.getsockname()[1]},127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("master", ["spark://", "spark://:7077", "spark://h:port", "spark://h:0"])
def test_an_address_that_is_none_is_reported(master):
    with pytest.raises(InvalidSettingError, match="spark://HOST:PORT"):
        cluster.await_master(master)


def test_a_cluster_s_session_takes_as_many_cores_as_there_are_slots_and_our_kernel_along():
    given = {"spark.jars": "/a.jar", "spark.plugins": "x.Y", "spark.driver.memory": "5g"}
    settings = cluster.settings_for(MASTER, 3, "/kernel.jar", given)
    assert settings["spark.cores.max"] == "3"
    assert settings["spark.jars"] == "/kernel.jar,/a.jar"
    assert settings["spark.plugins"] == f"{CLUSTER_PLUGIN},x.Y"
    assert settings["spark.driver.memory"] == "5g"
    assert cluster.settings_for(MASTER, 3, "/k", {"spark.cores.max": "9"})["spark.cores.max"] == "9"


def test_only_a_cluster_on_loopback_keeps_the_driver_there():
    assert cluster.settings_for(MASTER, 1, "/k", {})["spark.driver.host"] == "127.0.0.1"
    away = cluster.settings_for("spark://10.0.0.1:7077", 1, "/k", {})
    assert "spark.driver.host" not in away
    assert "spark.driver.bindAddress" not in away
