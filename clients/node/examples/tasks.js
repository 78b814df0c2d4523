// Ten tasks, as docs/clients.md shows them. It is run with the address of a server.

import assert from 'node:assert/strict';
import { Client, Refused } from 'rideau';

const client = new Client(process.argv[2]);
const done = [];

function work(value = 'work') {
  done.push(value);
  return 'shipped';
}

// task: hold a lock, and wait for it for at most ten seconds
await client.lock('job', { wait: 10_000 }, () => work());
// end

// task: hold it now or not at all, and say why not
try {
  await client.lock('job', {}, () => work());
} catch (no) {
  if (!(no instanceof Refused)) throw no;
  console.log(no.message, no.retryAfter);
}
// end

// task: let three hold it at a time
await client.lock('disk', { per: 3, wait: 10_000 }, () => work());
// end

// task: lend one of several licences
await client.take('cad', { wait: 10_000 }, (licence) => work(licence.value));
// end

// task: reserve an address for as long as it is used
await client.reserve('office', { ttl: 30_000 }, (address) => work(address.value));
// end

async function serve() {
  // task: serve one order as a worker
  await client.offer('orders', { wait: 10_000 }, (match) => match.done(work(match.value)));
  // end
}

const worker = serve();
// task: hand an order to a worker, and wait for its answer
const answer = await client.ask('orders', { value: 'order 1', wait: 10_000 }, (match) => match.otherEnded(30_000));
console.log(answer);
// end
await worker;

// task: keep to the limit of a service
await client.regulate('mail', { wait: 10_000 }, () => work());
// end

const pages = [0, 1, 2];
// task: stop when the lock is lost
await client.lock('job', { wait: 10_000 }, (lease) => {
  for (const page of pages) {
    lease.signal.throwIfAborted();
    work(page);
  }
});
// end

// task: have the storage refuse a holder that was paused for too long
await client.lock('job', { wait: 10_000 }, (lease) => work(lease.fence));
// end

assert.equal(done.length, 11);
await client.close();
