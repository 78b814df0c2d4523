"""The client for asyncio against the real server."""

import asyncio
import functools

import pytest
from conftest import Proxy, until

import rideau
import rideau.asyncio


def in_loop(test):
    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(asyncio.wait_for(test(**fixtures), 60))
    return run


def connect(url, **options):
    return rideau.asyncio.Client(url, **options)


async def is_free(server):
    async with connect(server.url) as other:
        try:
            await other.lock("job").acquire()
            return True
        except rideau.Refused:
            return False


@in_loop
async def test_everything_can_be_had(server):
    async with connect(server.url) as client:
        async with client.lock("job", wait=10) as lease:
            assert lease.fence and not lease.lost
            with pytest.raises(rideau.Refused) as no:
                await client.lock("job", wait=0.02).acquire()
            assert no.value.reason == "deadline"
        member = await client.take("one").acquire()
        await member.fail("broken")
        async with client.reserve("office", ttl=6) as value:
            first = value.expires
            while value.expires <= first:
                await asyncio.sleep(0.02)
        async with client.regulate("few") as lease:
            assert await lease.renew()

        async def work():
            async with client.offer("desk", "worker", wait=20) as match:
                await match.done(match.value + " is done")

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            async with client.ask("desk", "order", wait=20) as match:
                assert await match.ended() == "order is done"


@in_loop
async def test_a_cancelled_wait_leaves_nothing(server):
    async with connect(server.url) as client:
        first = await client.lock("job").acquire()
        for pause in (0, 0.001, 0.2):
            wait = asyncio.create_task(client.lock("job", wait=25).acquire())
            await asyncio.sleep(pause)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.lock("job", wait=25).acquire(), 0.2)
        await first.release()
        assert await is_free(server) and not client.held.leases


@pytest.mark.parametrize("how", ["revoke", "kill", "cut", "silent"])
def test_the_block_of_a_lost_lease_is_cancelled(server, how):
    proxy = Proxy(server.port)

    async def test():
        client = connect(proxy.url)
        with pytest.raises(rideau.LeaseLost):
            async with client.lock("job") as lease:
                match how:
                    case "revoke": server.cli("revoke", lease.ticket)
                    case "kill": server.kill()
                    case "cut": proxy.cut()
                    case "silent": proxy.runs.clear()
                await asyncio.sleep(5.5)
                raise AssertionError("the block was not told")
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)

    asyncio.run(test())
    proxy.runs.set()
    proxy.cut()


@in_loop
async def test_a_cancelled_block_gives_back(server):
    async with connect(server.url) as client:
        async def hold():
            async with client.lock("job"):
                await asyncio.sleep(60)

        task = asyncio.create_task(hold())
        while not client.held.leases:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await is_free(server)


def test_a_client_serves_one_loop_after_the_other(server):
    client = connect(server.url)

    async def hold():
        async with client.lock("job", wait=20):
            pass

    asyncio.run(hold())
    asyncio.run(hold())


@in_loop
async def test_many_wait_and_each_gets_it(server):
    async with connect(server.url) as client:
        order = []

        async def hold(number):
            async with client.lock("job", wait=25):
                order.append(number)

        await asyncio.gather(*(hold(number) for number in range(30)))
        assert sorted(order) == list(range(30))
    until("its session is over", lambda: client.session is None)
