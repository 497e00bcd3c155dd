#!/usr/bin/env python3
"""Recorders that were never there: recorders.py DIRECTORY COUNT PROFILE

Listens at DIRECTORY/fake-0001.sock and so on, and answers every request for a profile with that file, after the seconds that were asked for. Prints a line when all
listen, and ends with its standard input.
"""
import asyncio
import os
import resource
import sys
import urllib.parse

directory, count, profile = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "rb").read()
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(reader, writer):
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        url = urllib.parse.urlsplit(request.split(b" ")[1].decode())
        if url.path.startswith("/debug/pprof/"):
            seconds = float(urllib.parse.parse_qs(url.query).get("seconds", ["0"])[0])
            await asyncio.sleep(seconds)
            body = profile
        else:
            body = b"profile_recorder_handler_seconds_total 0\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    for number in range(1, count + 1):
        await asyncio.start_unix_server(serve, os.path.join(directory, f"fake-{number:04}.sock"), backlog=8)
    print("listening", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


asyncio.run(main())
