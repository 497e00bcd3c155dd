#!/usr/bin/env python3
"""Recorders that were never there: recorders.py DIRECTORY COUNT PROFILE [OLD]

Listens at DIRECTORY/fake-0001.sock and so on, and answers every request for a profile with that file, after the seconds that were asked for or when its session is to finish; the first OLD of them do not
know that request. Prints a line when all listen, and ends with its standard input.
"""
import asyncio
import functools
import os
import resource
import sys
import urllib.parse

directory, count, profile = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "rb").read()
old = int(sys.argv[4]) if len(sys.argv) > 4 else 0
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


sessions = {}


async def serve(number, reader, writer):
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        url = urllib.parse.urlsplit(request.split(b" ")[1].decode())
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        status, body = b"200 OK", profile
        if url.path == "/debug/pprof/finish":
            session = sessions.get(query["session"]) if number > old else None
            if session:
                session.set()
            status, body = (b"200 OK", b"1 finished\n") if session else (b"404 Not Found", b"no\n")
        elif url.path.startswith("/debug/pprof/"):
            finished = sessions[query["session"]] = asyncio.Event()
            try:
                await asyncio.wait_for(finished.wait(), float(query.get("seconds", 0)))
            except asyncio.TimeoutError:
                pass
            del sessions[query["session"]]
        else:
            body = b"profile_recorder_handler_seconds_total 0\nprofile_recorder_own_cpu_seconds_total 0\n"
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    for number in range(1, count + 1):
        path = os.path.join(directory, f"fake-{number:04}.sock")
        await asyncio.start_unix_server(functools.partial(serve, number), path, backlog=8)
    print("listening", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


asyncio.run(main())
