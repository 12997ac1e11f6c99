"""What protoc writes answers every call with "not implemented": all of it is overridden."""

import pytest

from onager.executor.agent.push import ExecutorService
from onager.protocol import externalscaler_pb2_grpc, onager_pb2_grpc
from onager.scheduler.api.gateway import ExecutorGateway
from onager.scheduler.api.scheduler_gateway import SchedulerGatewayService
from onager.scheduler.api.service import SchedulerService
from onager.scheduler.scaler import ScalerService


@pytest.mark.parametrize(
    ("generated", "serves"),
    [
        (onager_pb2_grpc.OnagerSchedulerServicer, SchedulerService),
        (onager_pb2_grpc.OnagerExecutorGatewayServicer, ExecutorGateway),
        (onager_pb2_grpc.OnagerSchedulerGatewayServicer, SchedulerGatewayService),
        (onager_pb2_grpc.OnagerExecutorServicer, ExecutorService),
        (externalscaler_pb2_grpc.ExternalScalerServicer, ScalerService),
    ],
)
def test_every_method_of_a_service_is_served(generated, serves):
    methods = [name for name in vars(generated) if not name.startswith("_")]
    assert methods
    assert [name for name in methods if getattr(serves, name) is getattr(generated, name)] == []
