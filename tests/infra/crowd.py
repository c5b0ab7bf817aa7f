"""Many workers in this process: a line on standard input starts one (+ NAME) or ends it (- NAME)."""

import asyncio
import sys

from distributed import Worker


async def main(address):
    workers, lines = {}, asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        sign, name = line
        if sign == "+":
            workers[name] = await Worker(address, name=name, nthreads=1, memory_limit=0, dashboard=False)
        else:
            await workers.pop(name).close()
    await asyncio.gather(*(worker.close() for worker in workers.values()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
