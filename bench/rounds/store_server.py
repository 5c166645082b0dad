# SPDX-License-Identifier: Apache-2.0
"""The process that serves c10d's store, as the agent on the endpoint's host does. Prints its port."""

import sys
from datetime import timedelta

from torch.distributed import TCPStore


def main() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    print(store.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
