"""What the JVM's environment and command line hold, which the code of every job can read."""

import psutil

from tests.integration.spark_runner.conftest import PLANTED


def test_the_jvm_inherits_the_users_variables_and_none_of_onagers(spark):
    environment = psutil.Process(spark.sparkContext._gateway.proc.pid).environ()
    assert environment["USERS_VARIABLE"] == "kept"
    assert PLANTED not in str(environment)
    assert not [name for name in environment if name.startswith("ONAGER_")]


def test_secret_settings_are_not_on_the_jvms_command_line_and_count_all_the_same(spark):
    command = psutil.Process(spark.sparkContext._gateway.proc.pid).cmdline()
    assert PLANTED not in str(command)
    assert "spark.driver.planted.secret=shown" in command
    assert spark.sparkContext._jsc.hadoopConfiguration().get("planted.secret.key") == PLANTED
    assert spark.sparkContext.getConf().get("spark.hadoop.planted.secret.key") == PLANTED
