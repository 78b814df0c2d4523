"""The client for threads against the real server."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import redis
from conftest import HERE, until

import rideau


@pytest.fixture
def client(server):
    with rideau.Client(server.url) as client:
        yield client


def is_free(server, key="job"):
    with rideau.Client(server.url) as other:
        try:
            other.lock(key).acquire()
            return True
        except rideau.Refused:
            return False


def test_a_lock_is_held_in_its_block_and_a_refusal_says_why(client, server):
    with client.lock("job", wait=10) as lease:
        assert (lease.unit, lease.units, bool(lease.lost)) == (1, 1, False)
        assert lease.sure_until == float("inf")
        for wait, reason in [(None, "busy"), (0.02, "deadline")]:
            with pytest.raises(rideau.Refused) as no:
                client.lock("job", wait=wait).acquire()
            assert no.value.reason == reason and no.value.id.startswith("d-"), no.value
        assert no.value.retry_after > 0 and "deadline" in str(no.value)
        fence = lease.fence
    again = client.lock("job").acquire()
    assert again.fence > fence
    again.release()
    assert is_free(server)
    with client.lock("job", per=2, buckets=2, units=3, note="a note") as lease:
        assert lease.units == 4


def test_a_wait_is_longer_than_the_time_out_of_the_socket(server):
    with rideau.Client(server.url, socket_timeout=0.2) as client:
        first = client.lock("job").acquire()
        threading.Timer(0.7, first.release).start()
        with client.lock("job", wait=20):
            assert not is_free(server)


def test_members_are_given_back_or_fail(client):
    asking = client.take("two", wait=5)
    with asking as one, asking as two:
        assert {one.value, two.value} == {"m1", "m2"}
    with pytest.raises(ZeroDivisionError), client.take("one"):
        1 / 0
    with client.take("one", wait=10) as member:
        assert member.value == "m1"
    with pytest.raises(redis.ResponseError, match="NOSUCH pool"):
        client.take("none").acquire()


def test_values_are_renewed_in_the_background(client, server):
    with client.reserve("office", ttl=6, key="mac:1", data="laptop") as lease:
        first = lease.expires
        until("it is renewed twice", lambda: lease.expires > first)
        lease.check()
        assert lease.value == "100" and lease.fence
    with client.reserve("office", wait=1, ttl=6) as lease:
        first = lease.expires
        until("it is renewed", lambda: lease.expires > first)
    with client.reserve("office") as lease:
        assert lease.value == "100"
        # It outlives its session, and is renewed in the next one.
        [server.cli("kill", id) for id in clients(server, "session=s-")]
        until("there is a new session", lambda: clients(server, "session=s-"))
        lease.check()


def clients(server, what):
    """The ids of connections whose line says so."""
    with redis.Redis.from_url(server.url, decode_responses=True) as observer:
        lines = observer.execute_command("CLIENT", "LIST").splitlines()
        return [line.split()[0].removeprefix("id=") for line in lines if what in line]


def test_parties_meet_at_a_broker(client):
    def work():
        with client.offer("desk", "worker 7", wait=20) as match:
            assert match.value == "order 1"
            match.done("shipped")
        with pytest.raises(RuntimeError), client.offer("desk", wait=20):
            raise RuntimeError

    worker = threading.Thread(target=work)
    worker.start()
    with client.ask("desk", "order 1", wait=20) as match:
        assert match.value == "worker 7"
        assert match.ended(20) == "shipped"
    with client.ask("desk", wait=20) as match, pytest.raises(rideau.LeaseLost, match="went away"):
        match.ended(20)
    worker.join()


def test_a_regulator_lets_go_on(client):
    with client.regulate("few") as lease:
        assert lease.renew()
        with pytest.raises(rideau.Refused):
            client.regulate("few", wait=0.01).acquire()


def test_a_revoked_lease_is_lost(client, server):
    with pytest.raises(rideau.LeaseLost, match="took it back"):
        with client.lock("job") as lease:
            told = []
            lease.watch(told.append)
            server.cli("revoke", lease.ticket)
            assert lease.lost.wait(20) and told == [lease]
            with pytest.raises(rideau.LeaseLost):
                lease.check()
    # At the end of the block it is told even if no beat has found it.
    with pytest.raises(rideau.LeaseLost, match="nothing is held"):
        with client.lock("job") as lease:
            server.cli("revoke", lease.ticket)
    client.lock("job").acquire()


def test_all_is_lost_with_the_server_and_the_next_one_serves(client, server, start):
    lease = client.lock("job").acquire()
    server.kill()
    assert lease.lost.wait(20)
    with pytest.raises(rideau.LeaseLost):
        lease.release()
    with pytest.raises(redis.ConnectionError):
        client.lock("job").acquire()
    start(port=server.port)
    with client.lock("job"):
        assert not is_free(server)


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_all_is_lost_with_the_connection(server, proxy, how):
    client = rideau.Client(proxy.url)
    lease = client.lock("job").acquire()
    since = time.monotonic()
    proxy.cut() if how == "cut" else proxy.runs.clear()
    assert lease.lost.wait(20)
    print(how, time.monotonic() - since)
    with pytest.raises(rideau.LeaseLost):
        lease.check()


def test_an_ask_keeps_its_place_when_its_connection_breaks(client, server):
    first, got = client.lock("job").acquire(), []
    wait = threading.Thread(target=lambda: got.append(client.lock("job", wait=30).acquire()))
    wait.start()
    until("it waits", lambda: client.held.pending)
    until("it is cut", lambda: [server.cli("kill", id) for id in clients(server, "cmd=await")])
    first.release()
    wait.join()
    got[0].release()


def test_grace_bridges_a_cut(server, proxy):
    with rideau.Client(proxy.url, grace=30) as client:
        with client.lock("job") as lease:
            proxy.cut(again=True)
            until("it is back", lambda: proxy.pairs)
            lease.check()
            assert not is_free(server)


def test_an_interrupted_wait_leaves_nothing(client, server):
    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    first = client.lock("job").acquire()
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Interrupt):
        client.lock("job", wait=25).acquire()
    first.release()
    assert is_free(server) and not client.held.pending


def test_a_fork_shares_nothing(client, server):
    with client.lock("job") as lease:
        child = os.fork()
        if child == 0:
            try:
                with pytest.raises(rideau.LeaseLost):
                    lease.check()
                with pytest.raises(rideau.Refused):
                    client.lock("job").acquire()
                with client.lock("other"):
                    os._exit(0)
            except BaseException as error:
                print(repr(error), flush=True)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert not is_free(server)
        lease.check()


def script(url, text, ttl=None):
    text = f"import rideau, time\nclient = rideau.Client({url!r}, ttl={ttl})\n{text}"
    return subprocess.Popen([sys.executable, "-c", text], cwd=HERE, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_what_a_killed_process_held_is_free_at_once(server):
    child = script(server.url, "client.lock('job').acquire(); print(1, flush=True); input()")
    child.stdout.readline()
    assert not is_free(server)
    child.kill()
    with rideau.Client(server.url) as client, client.lock("job", wait=20):
        child.wait()


def test_a_child_does_not_keep_what_its_killed_parent_held(server):
    child = script(server.url, """
lease = client.lock('job').acquire()
import os
if not (pid := os.fork()): time.sleep(60)
print(pid, flush=True); input()
""")
    grandchild = int(child.stdout.readline())
    child.kill()
    child.wait()
    try:
        with rideau.Client(server.url) as client, client.lock("job", wait=20):
            os.kill(grandchild, 0)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_process_that_was_suspended_knows(server):
    child = script(server.url, """
lease = client.lock('job').acquire()
value = client.reserve('office', ttl=1.0).acquire()
print(1, flush=True); input()
for it in lease, value:
    try: it.check()
    except rideau.LeaseLost: print('lost', flush=True)
""", ttl=1.0)
    child.stdout.readline()
    child.send_signal(signal.SIGSTOP)
    with rideau.Client(server.url) as client, client.lock("job", wait=20):
        until("the value is free", lambda: client.reserve("office").acquire().value == "100")
        child.stdin.write("\n")
        child.stdin.flush()
        child.send_signal(signal.SIGCONT)
        assert child.communicate()[0] == "lost\nlost\n"


def test_a_retry_follows_the_server(client):
    retry = rideau.Retry(times=3, longest=1.0)
    no = rideau.Refused("no", "codel", retry_after=0.4)
    assert 0.4 <= retry.pause(no, 0, 10) <= 0.44
    assert retry.pause(no, 3, 10) is None and retry.pause(no, 0, 0.3) is None
    assert retry.pause(rideau.Refused("no", "busy"), 0, 10) is None
    assert retry.pause(rideau.Refused("no", "codel", retry_after=2), 0, 10) is None
    client.retry = retry
    refusals = [rideau.Refused("no", "codel", retry_after=0.01) for _ in range(2)]
    once = client._grant_once

    async def refused_twice(*words):
        if refusals:
            raise refusals.pop()
        return await once(*words)

    client._grant_once = refused_twice
    with client.lock("job"):
        assert not refusals


def test_limits_are_refusals(client):
    held = [client.lock(f"key-{number}").acquire() for number in range(3)]
    with pytest.raises(rideau.Refused, match="keys_max") as no:
        client.lock("one more").acquire()
    assert no.value.reason == "busy" and len(held) == 3
