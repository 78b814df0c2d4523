"""The daemon as redis-py sees it: both protocols, one connection and a pool."""

import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PORT = int(sys.argv[1])


def connect(protocol, **options):
    return redis.Redis(port=PORT, protocol=protocol, decode_responses=True, **options)


def until(what, done):
    limit = time.monotonic() + 60
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.005)


def stat(client):
    reply = client.execute_command("POOL.STAT", "one")
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


def one_connection(protocol):
    client = connect(protocol, single_connection_client=True)
    assert client.ping() is True
    hello = client.execute_command("HELLO", protocol)
    hello = hello if isinstance(hello, dict) else dict(zip(hello[::2], hello[1::2]))
    assert (hello["server"], hello["proto"]) == ("rideau", protocol), hello
    lines = [line for line in client.client_list() if line["lib-name"].startswith("redis-py")]
    assert len(lines) == 1 and lines[0]["lib-ver"] == redis.__version__, lines
    assert client.client_setname("worker") and client.client_getname() == "worker"
    word, ticket, member, waited = client.execute_command("TAKE", "one", "NOTE", "a note")
    assert (word, member) == ("go", "m1") and isinstance(waited, int)
    [[kind, name, held, value, _, note]] = client.execute_command("HELD")
    assert [kind, name, held, value, note] == ["pool", "one", ticket, "m1", "a note"]
    assert client.execute_command("RELEASE", ticket) == "OK"
    try:
        client.execute_command("RELEASE", ticket)
        raise AssertionError("a stale ticket was accepted")
    except redis.ResponseError as error:
        assert str(error).startswith("STALE ticket"), error
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command("LOCK", "key", "PER", 2)
    pipeline.execute_command("LOCK", "key", "PER", 2)
    pipeline.execute_command("LOCK", "key", "PER", 2)
    pipeline.execute_command("UNLOCK", "key")
    words = [reply if reply == "OK" else reply[0] for reply in pipeline.execute()]
    assert words == ["go", "go", "full", "OK"], words
    transaction(client)
    client.close()
    until("its locks are free", lambda: lock_is_free())


def transaction(client):
    """A pipeline is a transaction by default. Nothing in it waits."""
    pipeline = client.pipeline()
    pipeline.execute_command("LOCK", "mine")
    pipeline.execute_command("LOCK", "mine", "WAIT", 20000)
    pipeline.ping()
    pipeline.execute_command("UNLOCK", "mine")
    first, second, *rest = pipeline.execute()
    assert (first[0], second[0], rest) == ("go", "full", [True, "OK"]), (first, second, rest)
    pipeline = client.pipeline()
    pipeline.execute_command("LOCK", "mine")
    pipeline.execute_command("LOK", "mine")
    try:
        pipeline.execute()
        raise AssertionError("a command that is none was executed")
    except redis.ResponseError as error:
        assert "did you mean LOCK?" in str(error), error
    assert client.execute_command("LOCK", "mine")[0] == "go"
    assert client.execute_command("UNLOCK", "mine") == "OK"


def lock_is_free():
    with connect(2, single_connection_client=True) as client:
        return client.execute_command("LOCK.STAT", "key")[1] == 0


def pool_of_connections(protocol):
    """Without a session a ticket works from anywhere, as long as its taker lives."""
    client = connect(protocol)
    failures = []

    def work():
        try:
            for _ in range(30):
                word, ticket, *_ = client.execute_command("TAKE", "two", "WAIT", 20000)
                assert word == "go", word
                assert client.execute_command("RELEASE", ticket) == "OK"
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures, failures
    client.close()


def session_over_a_pool(protocol):
    client = connect(protocol)
    with client.client() as opener:
        session, ttl = opener.execute_command("SESSION", "OPEN", "TTL", 60000)
        assert ttl == 60000
        ticket = opener.execute_command("TAKE", "one")[1]
    with client.client() as other:
        assert other.execute_command("SESSION", "ATTACH", session) == "OK"
        assert other.execute_command("HELD")[0][2] == ticket
        assert other.execute_command("SESSION", "CLOSE") == 1
    client.close()


def timeouts():
    holder = connect(2, single_connection_client=True)
    ticket = holder.execute_command("TAKE", "one")[1]
    options = {"single_connection_client": True, "retry": Retry(NoBackoff(), 0)}
    hasty = connect(2, socket_timeout=0.3, **options)
    try:
        hasty.execute_command("TAKE", "one", "WAIT", 20000)
        raise AssertionError("it should have timed out")
    except redis.TimeoutError:
        pass
    until("it gave its place up", lambda: stat(holder)["waiting"] == 0)
    # A push each second shows that the server is there.
    patient = connect(3, socket_timeout=1.8, **options)
    answers = []
    ask = lambda: answers.append(patient.execute_command("TAKE", "one", "WAIT", 20000))
    thread = threading.Thread(target=ask)
    thread.start()
    until("it waits", lambda: stat(holder)["waiting"] == 1)
    time.sleep(2.5)
    assert holder.execute_command("RELEASE", ticket) == "OK"
    thread.join()
    assert answers and answers[0][0] == "go", answers
    patient.close()
    holder.close()


def pushes():
    """A push that nobody asked for comes between a command and its reply."""
    holder = connect(3, single_connection_client=True)
    client = connect(3, single_connection_client=True)
    until("it is free", lambda: stat(holder)["held"] == 0)
    ticket = holder.execute_command("TAKE", "one")[1]
    word, later = client.execute_command("TAKE", "one", "ASYNC", "WAIT", 20000)
    assert word == "await"
    holder.execute_command("RELEASE", ticket)
    # The push is dropped, and the answer is still there.
    for _ in range(2):
        word, name, member, _ = client.execute_command("AWAIT", later, 20000)
        assert (word, name, member) == ("go", later, "m1")
    for number in range(20):
        assert client.execute_command("ECHO", number) == str(number)
    assert client.execute_command("RELEASE", later) == "OK"
    client.close()
    holder.close()


for version in (2, 3):
    one_connection(version)
    pool_of_connections(version)
    session_over_a_pool(version)
timeouts()
pushes()
print("all is well")
