"""A server of aiohttp that answers everything at once: what a request costs that does nothing.

It prints its port, and serves until its standard input ends.
"""

import asyncio
import sys

from aiohttp import web

_ANSWER = b'{"exit_code":0,"stdout":"' + b"x" * 400 + b'"}'


async def _answer(request: web.Request) -> web.StreamResponse:
    await request.read()
    return web.Response(body=_ANSWER, content_type="application/json")


async def main() -> None:
    """Serves."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    await ended.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
