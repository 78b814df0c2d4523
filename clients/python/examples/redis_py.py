"""The same ten tasks with redis-py and a Redis, in the shortest ways that its documentation and
the usual recipes have. It is run with the address of a Redis."""

import sys
import threading
import time
import uuid

import redis

r = redis.Redis.from_url(sys.argv[1], decode_responses=True)
r.rpush("cad", "seat-1", "seat-2")
done = []


def work(value="work"):
    done.append(value)
    return "shipped"


# task: hold a lock, and wait for it for at most ten seconds
with r.lock("job", timeout=30, blocking_timeout=10):
    work()
# end

# task: hold it now or not at all, and say why not
lock = r.lock("job", timeout=30)
if lock.acquire(blocking=False):
    try:
        work()
    finally:
        lock.release()
else:
    print("it is held, and nothing says for how long")
# end

# task: let three hold it at a time
me = str(uuid.uuid4())
until = time.monotonic() + 10
while True:
    now = time.time()
    r.zremrangebyscore("disk", 0, now - 30)
    r.zadd("disk", {me: now})
    if r.zrank("disk", me) < 3:
        break
    r.zrem("disk", me)
    if time.monotonic() > until:
        raise TimeoutError
    time.sleep(0.1)
try:
    work()
finally:
    r.zrem("disk", me)
# end

# task: lend one of several licences
_, licence = r.blpop("cad", timeout=10)
try:
    work(licence)
finally:
    r.rpush("cad", licence)
# end

# task: reserve an address for as long as it is used
me = str(uuid.uuid4())
address = next(a for a in range(100, 104) if r.set(f"office:{a}", me, nx=True, ex=30))
stop = threading.Event()


def renew():
    while not stop.wait(10):
        r.expire(f"office:{address}", 30)


threading.Thread(target=renew).start()
try:
    work(address)
finally:
    stop.set()
    r.delete(f"office:{address}")
# end


def serve():
    # task: serve one order as a worker
    _, order = r.brpop("orders", timeout=10)
    reply_to, value = order.split(" ", 1)
    r.lpush(reply_to, work(value))
    # end


worker = threading.Thread(target=serve)
worker.start()
# task: hand an order to a worker, and wait for its answer
reply_to = str(uuid.uuid4())
r.lpush("orders", f"{reply_to} order 1")
print(r.brpop(reply_to, timeout=30)[1])
# end
worker.join()

# task: keep to the limit of a service
while r.incr("mail") > 8:
    r.decr("mail")
    time.sleep(0.1)
try:
    work()
finally:
    r.decr("mail")
# end

pages = iter(range(3))
# task: stop when the lock is lost
with r.lock("job", timeout=30, blocking_timeout=10) as lock:
    for page in pages:
        if not lock.owned():
            raise RuntimeError("the lock is lost")
        lock.reacquire()
        work(page)
# end

# task: have the storage refuse a holder that was paused for too long
with r.lock("job", timeout=30, blocking_timeout=10):
    fence = r.incr("job:fence")
    work(fence)
# end

assert len(done) == 11, done
