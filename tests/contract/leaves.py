# SPDX-License-Identifier: Apache-2.0
"""Leaves a server behind, in a session of its own, that listens at the port in the file named `port`."""

import subprocess
import sys
from pathlib import Path

SERVER = """
import socket, sys, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    time.sleep(600)
"""

server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, start_new_session=True)
assert server.stdout is not None
Path(sys.argv[1]).write_text(server.stdout.readline())
