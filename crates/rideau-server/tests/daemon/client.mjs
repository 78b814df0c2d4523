// The daemon as node-redis sees it, on both protocols.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [folder, port] = process.argv.slice(2);
const { createClient } = createRequire(`${folder}/`)('redis');

async function connect(RESP, name) {
  const socket = { host: '127.0.0.1', port: Number(port), reconnectStrategy: false };
  const client = createClient({ RESP, socket, name });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function until(what, done) {
  const limit = Date.now() + 60_000;
  while (!(await done())) {
    assert(Date.now() < limit, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function waiting(client) {
  const reply = await client.sendCommand(['POOL.STAT', 'one']);
  if (!Array.isArray(reply)) return Number(reply.waiting);
  return reply[reply.indexOf('waiting') + 1];
}

for (const version of [2, 3]) {
  const client = await connect(version, `node-${version}`);
  const other = await connect(version, `other-${version}`);
  assert.equal(await client.ping(), 'PONG');
  const list = await client.sendCommand(['CLIENT', 'LIST']);
  assert.match(String(list), new RegExp(`name=node-${version} .*lib-name=node-redis`));

  const [word, ticket, member] = await client.sendCommand(['TAKE', 'one', 'WAIT', '20000']);
  assert.deepEqual([word, member], ['go', 'm1']);

  // A wait holds up its own connection only.
  const order = [];
  const taken = other.sendCommand(['TAKE', 'one', 'WAIT', '20000']);
  const taking = taken.then((reply) => order.push(reply[0]));
  const behind = other.sendCommand(['ECHO', 'behind']).then((reply) => order.push(reply));
  await until('it waits', async () => (await waiting(client)) === 1);
  assert.deepEqual(order, []);
  assert.equal(await client.sendCommand(['RELEASE', ticket]), 'OK');
  await Promise.all([taking, behind]);
  assert.deepEqual(order, ['go', 'behind']);

  await assert.rejects(client.sendCommand(['RELEASE', ticket]), /^.*STALE ticket/);
  await assert.rejects(client.sendCommand(['LOK', 'key']), /did you mean LOCK/);

  // An answer that comes later, pushed or not.
  const [later, name] = await client.sendCommand(['TAKE', 'one', 'ASYNC', 'WAIT', '20000']);
  assert.equal(later, 'await');
  const [, held] = await taken;
  assert.equal(await other.sendCommand(['RELEASE', held]), 'OK');
  const [yes, same] = await client.sendCommand(['AWAIT', name, '20000']);
  assert.deepEqual([yes, same], ['go', name]);
  assert.equal(await client.sendCommand(['RELEASE', name]), 'OK');

  // A transaction, in which nothing waits.
  const multi = client.multi();
  multi.addCommand(['LOCK', 'mine']).addCommand(['LOCK', 'mine', 'WAIT', '20000']);
  const [first, second, ok] = await multi.addCommand(['UNLOCK', 'mine']).exec();
  assert.deepEqual([first[0], second[0], String(ok)], ['go', 'full', 'OK']);
  const wrong = client.multi().addCommand(['LOCK', 'mine']).addCommand(['LOK', 'mine']);
  await assert.rejects(wrong.exec());
  assert.equal((await client.sendCommand(['LOCK', 'mine']))[0], 'go');
  assert.equal(await client.sendCommand(['UNLOCK', 'mine']), 'OK');

  // Many commands at once, in order.
  const echoes = Array.from({ length: 500 }, (_, number) => String(number));
  const replies = await Promise.all(echoes.map((text) => client.sendCommand(['ECHO', text])));
  assert.deepEqual(replies, echoes);

  // One that is cut off holds nothing.
  const [, lock] = await client.sendCommand(['LOCK', 'key']);
  assert(lock.startsWith('l-'));
  assert.equal((await other.sendCommand(['LOCK', 'key']))[0], 'full');
  client.destroy();
  const got = await other.sendCommand(['LOCK', 'key', 'WAIT', '20000']);
  assert.equal(got[0], 'go');
  await other.close();
}
console.log('all is well');
