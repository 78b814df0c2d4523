"""A server for each test, a proxy whose connections can be cut, and what operators do."""

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

PROGRAM = os.environ["RIDEAU_PROGRAM"]
CONFIG = """
[store]
kind = "memory"
[pool.one]
member = { list = ["m1"] }
[pool.two]
member = { list = ["m1", "m2"] }
[broker.desk]
[regulator.few]
valve = { kind = "open", max = 1 }
[range.office]
values = ["100-103"]
start = "free"
[lock."*"]
[limits]
keys_max = 3
"""


def until(what, done):
    limit = time.monotonic() + 60
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.01)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    def __init__(self, folder, config=CONFIG, port=None):
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        file = folder / "rideau.toml"
        file.write_text(f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nadmin = "none"\n{config}')
        log = open(folder / "log", "ab")
        self.child = subprocess.Popen([PROGRAM, "serve", "-c", file], stdout=log, stderr=log,
                                      env={**os.environ, "XDG_STATE_HOME": str(folder)})
        until("the server answers", self.answers)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def cli(self, *words):
        words = [PROGRAM, "--server", f"127.0.0.1:{self.port}", *words]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def kill(self):
        self.child.kill()
        self.child.wait()


class Proxy:
    """Between a client and a server."""

    def __init__(self, port):
        self.to, self.pairs = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.runs = threading.Event()
        self.runs.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return
            self.runs.wait()
            try:
                pair = (one, socket.create_connection(("127.0.0.1", self.to)))
            except OSError:
                one.close()
                continue
            self.pairs.append(pair)
            for way in (pair, pair[::-1]):
                threading.Thread(target=self.copy, args=way, daemon=True).start()

    def copy(self, source, target):
        try:
            while data := source.recv(65536):
                self.runs.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, again=False):
        if not again:
            self.listener.close()
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()


@pytest.fixture
def start(tmp_path):
    servers = []

    def start(*args, **kwargs):
        servers.append(Server(tmp_path, *args, **kwargs))
        return servers[-1]

    yield start
    for server in servers:
        if server.child.poll() is None:
            server.child.send_signal(signal.SIGCONT)
            server.kill()


@pytest.fixture
def server(start):
    return start()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.port)
    yield proxy
    proxy.runs.set()
    proxy.cut()


HERE = Path(__file__).parent.parent
