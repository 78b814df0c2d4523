"""Ten tasks, as docs/clients.md shows them. It is run with the address of a server."""

import sys
import threading

import rideau

client = rideau.Client(sys.argv[1])
done = []


def work(value="work"):
    done.append(value)
    return "shipped"


# task: hold a lock, and wait for it for at most ten seconds
with client.lock("job", wait=10):
    work()
# end

# task: hold it now or not at all, and say why not
try:
    with client.lock("job"):
        work()
except rideau.Refused as no:
    print(no, no.retry_after)
# end

# task: let three hold it at a time
with client.lock("disk", per=3, wait=10):
    work()
# end

# task: lend one of several licences
with client.take("cad", wait=10) as licence:
    work(licence.value)
# end

# task: reserve an address for as long as it is used
with client.reserve("office", ttl=30) as address:
    work(address.value)
# end


def serve():
    # task: serve one order as a worker
    with client.offer("orders", wait=10) as match:
        match.done(work(match.value))
    # end


worker = threading.Thread(target=serve)
worker.start()
# task: hand an order to a worker, and wait for its answer
with client.ask("orders", "order 1", wait=10) as match:
    print(match.ended(wait=30))
# end
worker.join()

# task: keep to the limit of a service
with client.regulate("mail", wait=10):
    work()
# end

pages = iter(range(3))
# task: stop when the lock is lost
with client.lock("job", wait=10) as lease:
    for page in pages:
        lease.check()
        work(page)
# end

# task: have the storage refuse a holder that was paused for too long
with client.lock("job", wait=10) as lease:
    work(lease.fence)
# end

assert len(done) == 11, done
client.close()
