// The daemon as ioredis sees it, with its default settings and with the older protocol.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [folder, port] = process.argv.slice(2);
const { Redis } = createRequire(`${folder}/`)('ioredis');

async function until(what, done) {
  const limit = Date.now() + 60_000;
  while (!(await done())) {
    assert(Date.now() < limit, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function waiting(client) {
  const reply = await client.call('POOL.STAT', 'one');
  if (!Array.isArray(reply)) return Number(reply.waiting);
  return reply[reply.indexOf('waiting') + 1];
}

for (const settings of [{}, { protocol: 2 }]) {
  const connect = () => new Redis(Number(port), '127.0.0.1', settings);
  const [client, other] = [connect(), connect()];
  assert.equal(await client.ping(), 'PONG');

  const [word, ticket, member] = await client.call('TAKE', 'one', 'WAIT', '20000');
  assert.deepEqual([word, member], ['go', 'm1']);

  // A wait holds up its own connection only.
  const taken = other.call('TAKE', 'one', 'WAIT', '20000');
  await until('it waits', async () => (await waiting(client)) === 1);
  assert.equal(await client.call('RELEASE', ticket), 'OK');
  const [go, held] = await taken;
  assert.equal(go, 'go');
  await assert.rejects(client.call('RELEASE', ticket), /^.*STALE ticket/);
  await assert.rejects(client.call('LOK', 'key'), /did you mean LOCK/);

  // An answer that comes later, whether or not the client knows what a push is.
  const [later, name] = await client.call('TAKE', 'one', 'ASYNC', 'WAIT', '20000');
  assert.equal(later, 'await');
  assert.equal(await other.call('RELEASE', held), 'OK');
  for (let time = 0; time < 2; time += 1) {
    const [yes, same] = await client.call('AWAIT', name, '20000');
    assert.deepEqual([yes, same], ['go', name]);
  }
  assert.equal(await client.call('RELEASE', name), 'OK');

  // A transaction, in which nothing waits, and one that is refused as a whole.
  const multi = client.multi().call('LOCK', 'mine').call('LOCK', 'mine', 'WAIT', '20000');
  const [first, second, ok] = await multi.call('UNLOCK', 'mine').exec();
  assert.deepEqual([first[1][0], second[1][0], ok[1]], ['go', 'full', 'OK']);
  await assert.rejects(client.multi().call('LOCK', 'mine').call('LOK', 'mine').exec());
  assert.equal((await client.call('LOCK', 'mine'))[0], 'go');
  assert.equal(await client.call('UNLOCK', 'mine'), 'OK');

  // Many commands at once, in order, each with its own error.
  const pipeline = client.pipeline();
  for (let number = 0; number < 500; number += 1) pipeline.call('ECHO', String(number));
  const replies = await pipeline.call('LOK', 'key').exec();
  assert.deepEqual(
    replies.slice(0, 500).map(([, text]) => text),
    Array.from({ length: 500 }, (_, number) => String(number)),
  );
  assert.match(String(replies[500][0]), /did you mean LOCK/);

  // Events, on a connection of their own.
  const listener = connect();
  const heard = new Promise((resolve) => listener.once('message', (_, text) => resolve(text)));
  assert.equal(await listener.subscribe('rideau:events:session'), 1);
  const guest = connect();
  await guest.call('SESSION', 'OPEN', 'TTL', '1');
  assert.match(await heard, /expired/);
  guest.disconnect();
  listener.disconnect();

  // One that is cut off holds nothing.
  assert.equal((await client.call('LOCK', 'key'))[0], 'go');
  assert.equal((await other.call('LOCK', 'key'))[0], 'full');
  client.disconnect();
  assert.equal((await other.call('LOCK', 'key', 'WAIT', '20000'))[0], 'go');
  await other.quit();
}
console.log('all is well');
