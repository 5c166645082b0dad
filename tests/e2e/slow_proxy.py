# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy whose bytes arrive late: `slow_proxy.py LISTEN_PORT TARGET_PORT SECONDS_EACH_WAY`. Runs in a pod."""

import asyncio
import sys

LISTEN, TARGET, DELAY = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)

    arriving = asyncio.create_task(arrive())
    try:
        while data := await reader.read(1 << 16):
            on_the_way.put_nowait((loop.time() + DELAY, data))
    except OSError:
        pass
    on_the_way.put_nowait((loop.time() + DELAY, b""))
    await arriving


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    target_reader, target_writer = await asyncio.open_connection("127.0.0.1", TARGET)
    await asyncio.gather(pass_on(reader, target_writer), pass_on(target_reader, writer), return_exceptions=True)


async def main() -> None:
    server = await asyncio.start_server(serve, None, LISTEN)
    print("serving", flush=True)
    await server.serve_forever()


asyncio.run(main())
