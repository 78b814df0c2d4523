"""An application for tests: it does whatever a path or a variable asks for."""

import asyncio
import os
import signal
import socket
import sys
import time
import urllib.parse

served = 0
busy = 0
busiest = 0
kept = []
fails = False


def variable(name, default=""):
    return os.environ.get(name, default)


def flood(blocks):
    block = b"\x00\xff" + b"x" * 65534
    for _ in range(blocks):
        os.write(1, block)


def before():
    """Everything that may go wrong while it starts."""
    global fails
    fails = bool(variable("FAIL_IF")) and os.path.exists(variable("FAIL_IF"))
    flood(int(variable("FLOOD", "0")))
    if variable("SAY"):
        print(variable("SAY"), flush=True)
    if variable("CRASH_IF") and os.path.exists(variable("CRASH_IF")):
        print("this code is broken", file=sys.stderr, flush=True)
        sys.exit(1)
    if variable("COUNT_STARTS"):
        with open(variable("COUNT_STARTS"), "a") as log:
            log.write(f"{time.time()} {os.getpid()}\n")
    if variable("CRASH"):
        print("cannot start: CRASH is set", file=sys.stderr, flush=True)
        sys.exit(int(variable("CRASH")))
    if variable("CLOSE_OUTPUT"):
        os.close(1)
        os.close(2)
        os.open("/dev/null", os.O_WRONLY)
        os.open("/dev/null", os.O_WRONLY)
    if variable("FORK") and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        while True:
            time.sleep(60)
    if variable("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(float(variable("START_DELAY", "0")))
    if variable("NEVER_LISTEN"):
        time.sleep(3600)


def listener():
    if variable("LISTEN_FDS"):
        assert variable("LISTEN_PID") == str(os.getpid()), "the listener is not ours"
        return socket.socket(fileno=3)
    if variable("RIDEAU_SOCKET"):
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(variable("RIDEAU_SOCKET"))
    else:
        listening = socket.create_server(
            ("127.0.0.1", int(variable("WRONG_PORT") or variable("PORT")))
        )
    listening.listen(256)
    return listening


async def head(reader):
    text = await reader.readuntil(b"\r\n\r\n")
    lines = text.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    fields = {}
    for line in lines[1:]:
        if ":" in line:
            name, value = line.split(":", 1)
            fields[name.lower()] = value.strip()
    return method, path, fields


async def body(reader, fields):
    if fields.get("transfer-encoding", "").lower() == "chunked":
        parts = []
        while True:
            size = int((await reader.readline()).split(b";")[0], 16)
            parts.append(await reader.readexactly(size))
            await reader.readline()
            if size == 0:
                return b"".join(parts)
    return await reader.readexactly(int(fields.get("content-length", "0")))


def answer(text, more=""):
    data = text.encode()
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    ).encode() + data


async def serve(reader, writer):
    global busy, busiest, served
    patience = None
    try:
        while True:
            method, path, fields = await asyncio.wait_for(head(reader), patience)
            patience = float(variable("IDLE_CLOSE", "0")) / 1000 or None
            busy += 1
            busiest = max(busiest, busy)
            try:
                await turn(method, path, fields, reader, writer)
            finally:
                busy -= 1
                served += 1
    except (asyncio.IncompleteReadError, asyncio.TimeoutError, ConnectionError, OSError):
        pass
    finally:
        writer.close()


async def sink(reader, fields):
    """Read without haste and keep nothing."""
    left = total = int(fields["content-length"])
    while left > 0:
        left -= len(await reader.read(min(left, 1 << 16)))
        await asyncio.sleep(0.001)
    return total


async def source(writer, mebibytes):
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {mebibytes << 20}\r\n\r\n"
    writer.write(head.encode())
    piece = b"x" * (1 << 16)
    for _ in range(mebibytes * 16):
        writer.write(piece)
        await writer.drain()


async def made(writer, length, fields):
    """As many bytes of text as are wanted, with these fields."""
    text = b"".join(b"line %d of a text\n" % number for number in range(length // 10 + 1))
    text = text[:length]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    if ("Transfer-Encoding", "chunked") in fields:
        text = b"%x\r\n%s\r\n0\r\n\r\n" % (length, text)
    else:
        head += f"Content-Length: {length}\r\n"
    writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + text)
    await writer.drain()


async def events(writer, count, pause):
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for _ in range(count):
        event = f"data: {time.time():.6f}\n\n"
        writer.write(f"{len(event):x}\r\n{event}\r\n".encode())
        await writer.drain()
        await asyncio.sleep(pause)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def talk(fields, reader, writer):
    """Become something that sends back what it gets."""
    became = fields.get("upgrade", "talk")
    head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {became}\r\n\r\n"
    writer.write(head.encode())
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def turn(method, path, fields, reader, writer):
    words = path.split("?")[0].strip("/").split("/")
    if words[0] == "sink":
        writer.write(answer(str(await sink(reader, fields))))
        return await writer.drain()
    if words[0] == "source":
        return await source(writer, int(words[1]))
    if words[0] == "made":
        query = urllib.parse.urlsplit(path).query
        return await made(writer, int(words[1]), urllib.parse.parse_qsl(query))
    if words[0] == "events":
        return await events(writer, int(words[1]), int(words[2]) / 1000)
    if words[0] == "talk":
        return await talk(fields, reader, writer)
    sent = await body(reader, fields)
    if fails:
        if method == "POST" and variable("COUNT_POSTS"):
            with open(variable("COUNT_POSTS"), "a") as log:
                log.write("x")
        writer.write(b"HTTP/1.1 500 Broken\r\nContent-Length: 6\r\n\r\nbroken")
        return await writer.drain()
    if words[0] == "sleep":
        await asyncio.sleep(int(words[1]) / 1000)
    elif words[0] == "exit":
        os._exit(int(words[1]))
    elif words[0] == "say":
        print(words[1], flush=True)
    elif words[0] == "flood":
        flood(int(words[1]))
    elif words[0] == "hog":
        kept.append(bytearray(os.urandom(1024) * (int(words[1]) * 1024)))
    elif words[0] == "count" and variable("COUNT_POSTS"):
        with open(variable("COUNT_POSTS"), "a") as log:
            log.write("x")
        await asyncio.sleep(int(words[1]) / 1000)
    if words[0] == "pid":
        text = str(os.getpid())
    elif words[0] == "version":
        text = open(variable("VERSION_FILE")).read() if variable("VERSION_FILE") else "none"
    elif words[0] == "started":
        text = variable("VERSION")
    elif words[0] == "cwd":
        text = os.getcwd()
    elif words[0] == "busiest":
        text = str(busiest)
    elif words[0] == "head":
        text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    elif words[0] == "echo":
        text = f"{len(sent)}"
    elif words[0] == "env":
        text = variable(words[1], "(none)")
    else:
        text = f"ok {method} {path} pid={os.getpid()} served={served}"
    writer.write(answer(text))
    await writer.drain()


async def beat(pause):
    """Say again and again that all is well."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    line.connect(variable("NOTIFY_SOCKET"))
    line.send(b"READY=1")
    while True:
        line.send(b"WATCHDOG=1")
        await asyncio.sleep(pause)


async def main():
    before()
    server = await asyncio.start_server(serve, sock=listener())
    if variable("BEAT"):
        kept.append(asyncio.create_task(beat(int(variable("BEAT")) / 1000)))
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if not variable("IGNORE_TERM"):
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.close()


asyncio.run(main())
