"""Connections to the members: one channel each, and which of them is used."""

import os
from pathlib import Path
from typing import Any, Final

import grpc
from aetcd import rpc

from onager.state_backend.etcd.renewals import Renewals
from onager.state_backend.etcd.url import EtcdUrl, Tls

_OPTIONS: Final = [
    # Answers are as large as what was asked for; etcd itself limits requests.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A member that was paused, or whose host is gone, does not close its connections. etcd allows a ping every 5 s, and
    # none while no call is in flight: that ends the connection with "too_many_pings".
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    # For gRPC's own bandwidth pings: one without an answer holds back all others, by default for a minute.
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Members come back within a second; gRPC would wait up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


class Endpoint:
    """One member: its stubs, and the streams that are open to it."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.streams: set[Any] = set()
        self.is_failing = False
        """Whether the last call failed, so that each failure is logged once."""
        self._channel = (
            grpc.aio.insecure_channel(address, options=_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        )
        self.kv = rpc.KVStub(self._channel)
        self.lease = rpc.LeaseStub(self._channel)
        self.renewals = Renewals(self.lease)
        self.watch = rpc.WatchStub(self._channel)
        self.auth = rpc.AuthStub(self._channel)
        self.maintenance = rpc.MaintenanceStub(self._channel)

    @property
    def is_connected(self) -> bool:
        """Whether a request would go out at once."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    def cut_streams(self) -> None:
        """End the open streams, so that their watches switch to another member."""
        for stream in self.streams:
            stream.cancel()

    async def close(self) -> None:
        """Close the channel; calls in flight end as cancelled."""
        await self._channel.close(None)
        await self.renewals.close()


class Endpoints:
    """The members of a cluster; *current* is used until it fails."""

    def __init__(self, url: EtcdUrl) -> None:
        credentials = None if url.tls is None else _credentials(url.tls)
        self._all = [Endpoint(address, credentials) for address in url.endpoints]
        # This spreads the processes over the members.
        self._index = os.getpid() % len(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> Endpoint:
        """The member to ask."""
        return self._all[self._index]

    def leave(self, endpoint: Endpoint) -> None:
        """Switch from *endpoint* to the next, unless that was done already."""
        if endpoint is self.current and len(self._all) > 1:
            self._index = (self._index + 1) % len(self._all)
            endpoint.cut_streams()

    async def close(self) -> None:
        """Close all channels."""
        for endpoint in self._all:
            await endpoint.close()


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_pem(tls.cacert), _pem(tls.key), _pem(tls.cert))


def _pem(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
