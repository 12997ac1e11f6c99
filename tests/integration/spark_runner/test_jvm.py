"""How classes of the JVM are looked up."""

from onager.executor.spark.jvm import Jvm


def test_a_method_of_a_class_is_looked_up_once(spark, monkeypatch):
    jvm = Jvm(spark._jvm)
    commands = []
    client = spark.sparkContext._gateway._gateway_client
    send = client.send_command
    monkeypatch.setattr(
        client, "send_command", lambda command, *at, **how: (commands.append(command), send(command, *at, **how))[1]
    )
    integer = jvm.java_class("java.lang.Integer")
    assert [integer.parseInt(str(number)) for number in range(5)] == [*range(5)]
    assert integer.MAX_VALUE == 2**31 - 1
    assert jvm.java_class("java.util.ArrayList")().size() == 0
    # Other threads may send commands meanwhile, so only those that name the method count.
    of_method = [command[0] for command in commands if "parseInt" in command]
    assert of_method == ["r"] + 5 * ["c"]
