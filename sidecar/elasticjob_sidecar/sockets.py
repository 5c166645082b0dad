# SPDX-License-Identifier: Apache-2.0
"""Socket options of every long-lived connection of the sidecar."""

import socket

IDLE, INTERVAL, PROBES = 10, 5, 3
GONE_SECONDS = IDLE + PROBES * INTERVAL


def keep_alive(connection: socket.socket) -> None:
    """Notice within 25 seconds that the other end's machine is gone; send small messages at once.

    Keep-alive probes notice it on an idle connection. Unacknowledged data stops the probes and would be resent for a
    quarter of an hour; the user timeout ends that, and also a connection whose other end accepts no data for so long.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, IDLE),
        (socket.TCP_KEEPINTVL, INTERVAL),
        (socket.TCP_KEEPCNT, PROBES),
        (socket.TCP_USER_TIMEOUT, int(GONE_SECONDS * 1000)),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
