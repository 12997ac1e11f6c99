"""What was measured of an operator of a plan as it ran."""

from onager.protocol import onager_pb2 as pb


def metric(operator: pb.FinalOperator, name: str) -> int | None:
    """Return the metric *name*; None if the operator has none."""
    return next((each.value for each in operator.metrics if each.name == name), None)
