# SPDX-License-Identifier: Apache-2.0
"""The stand-in for a sidecar."""

import socket

from support.trainer_sidecar import STREAMS, Sidecar
from support.waiting import DEADLINE


def test_a_stream_that_opens_while_the_sidecar_stops_ends(monkeypatch):
    sidecar = Sidecar()
    sidecar.start()
    server, streams = sidecar._server, []
    shut_down = server.shutdown

    def late() -> None:
        stream = socket.create_connection(("127.0.0.1", sidecar.port), DEADLINE)
        stream.sendall(f"GET {STREAMS[0]} HTTP/1.1\r\n\r\n".encode())
        assert stream.recv(1)  # it is served
        streams.append(stream)
        shut_down()

    monkeypatch.setattr(server, "shutdown", late)
    sidecar.stop()
    with streams[0] as stream:
        while stream.recv(1024):
            pass
