"""Nodes of a cluster as the cluster clients of redis-py and valkey-py see them, with their
default settings. One node is killed meanwhile."""

import importlib
import os
import signal
import sys
import time

MODULE, PLAIN, KILLED, PID = sys.argv[1], *map(int, sys.argv[2:5])
# With a file of authorities all connections are within TLS.
TLS = {"ssl": True, "ssl_ca_certs": sys.argv[5]} if len(sys.argv) > 5 else {}
library = importlib.import_module(MODULE)
NAME = MODULE.capitalize()
Plain, Cluster = getattr(library, NAME), getattr(library, NAME + "Cluster")


def connect():
    return Cluster(host="127.0.0.1", port=PLAIN, **TLS)


def ask(client, *words):
    reply = client.execute_command(*words)
    return [text(part) for part in reply] if isinstance(reply, list) else text(reply)


def text(part):
    return part.decode() if isinstance(part, bytes) else part


def until(what, done):
    limit = time.monotonic() + 60
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.005)


def total(ports, name):
    """A number of all nodes."""
    sections = (Plain(host="127.0.0.1", port=port, **TLS).info("cluster") for port in ports)
    return sum(section[f"cluster_{name}"] for section in sections)


def keys_by_node(client):
    """Three keys of each node, by its port."""
    keys = {}
    for number in range(1_000):
        port = client.get_node_from_key(f"key-{number}").port
        own = keys.setdefault(port, [])
        if len(own) < 3:
            own.append(f"key-{number}")
    return keys


def straight(client, keys):
    """Each command goes to the node that decides, and no node sends it on."""
    ports = list(keys)
    before = total(ports, "hops_out"), total(ports, "redirects")
    for port, own in keys.items():
        for key in own:
            word, ticket, *_ = ask(client, "LOCK", key)
            assert word == "go" and client.get_node_from_key(ticket).port == port, ticket
            assert ask(client, "LOCK", key)[0] == "full"
            stat = ask(client, "LOCK.STAT", key)
            assert (stat[b"held"] if isinstance(stat, dict) else stat[1]) == 1, stat
            assert ask(client, "RELEASE", ticket) == "OK"
    for _ in range(30):
        word, value, ticket, *_ = ask(client, "RESERVE", "all", "TTL", 60_000, "DATA", "mine")
        assert word == "go"
        assert ask(client, "REFRESH", ticket, "TTL", 60_000)[0] == "ok"
        assert ask(client, "UPDATE", ticket, "DATA", "other")[0] == "ok"
        assert ask(client, "RELEASE", ticket) == "OK"
    after = total(ports, "hops_out"), total(ports, "redirects")
    assert after == before, (before, after)
    # A value has no slot: its owner is asked by the node that it came to.
    word, value, ticket, *_ = ask(client, "RESERVE", "all", "TTL", 60_000)
    assert ask(client, "LOOKUP", value), value
    assert ask(client, "RELEASE", ticket) == "OK"


def pipelines(client, keys):
    """One pipeline for keys and tickets of all nodes."""
    all_keys = [key for own in keys.values() for key in own]
    pipeline = client.pipeline()
    for key in all_keys:
        pipeline.execute_command("LOCK", key)
    replies = pipeline.execute()
    assert [text(reply[0]) for reply in replies] == ["go"] * len(all_keys), replies
    for reply in replies:
        pipeline.execute_command("RELEASE", text(reply[1]))
    assert [text(reply) for reply in pipeline.execute()] == ["OK"] * len(all_keys)


def redirected(client, keys):
    """A client that is wrong about a slot is told, and then it knows."""
    ports = list(keys)
    key, wrong = keys[ports[0]][0], keys[ports[1]][0]
    before = total(ports, "redirects")

    def lock_at_wrong_node():
        slots = client.nodes_manager.slots_cache
        slots[client.keyslot(key)] = slots[client.keyslot(wrong)]
        lock_and_release(client, key)
        # A node that has just learnt of an owner forwards.
        return total(ports, "redirects") > before

    until("it is redirected", lock_at_wrong_node)
    assert client.get_node_from_key(key).port == ports[0]
    for _ in range(10):
        lock_and_release(client, key)
    assert total(ports, "redirects") == before + 1


def lock_and_release(client, key):
    word, ticket, *_ = ask(client, "LOCK", key)
    assert word == "go" and ask(client, "RELEASE", ticket) == "OK"


def killed(client, keys):
    """What a node had another takes over, and the client finds it."""
    key = keys[KILLED][0]
    before = ask(client, "LOCK", key)
    # Its holder is connected to whichever node the client took for the owner.
    assert before[0] == "go" and ask(client, "RELEASE", before[1]) == "OK", before
    values = [ask(client, "RESERVE", "all", "TTL", 600_000) for _ in range(20)]
    os.kill(PID, signal.SIGKILL)
    replies = []

    # Commands wait for the next owner, and the client repeats them some times. A busy machine
    # may take longer.
    def is_locked():
        try:
            replies.append(ask(client, "LOCK", key))
        except library.exceptions.ClusterDownError:
            return False
        return replies[-1][0] == "go"

    until("the lock is granted", is_locked)
    assert replies[-1][4] > before[4], "fences grow"
    assert client.get_node_from_key(key).port != KILLED
    assert ask(client, "RELEASE", replies[-1][1]) == "OK"
    for _, _, ticket, *_ in values:
        assert ask(client, "REFRESH", ticket, "TTL", 600_000)[0] == "ok"


client = connect()
keys = keys_by_node(client)
assert len(keys) == 3 and PLAIN not in keys, keys
straight(client, keys)
pipelines(client, keys)
redirected(client, keys)
killed(client, keys)
print("all is well")
