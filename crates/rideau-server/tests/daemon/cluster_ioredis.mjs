// Nodes of a cluster as the cluster client of ioredis sees them, with its default settings.
// It knows no key of a command that Redis does not have: it asks any node, and is sent on.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [folder, plain, killed, pid] = process.argv.slice(2);
const { Cluster } = createRequire(`${folder}/`)('ioredis');

async function until(what, done) {
  const limit = Date.now() + 60_000;
  while (!(await done())) {
    assert(Date.now() < limit, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const cluster = new Cluster([{ host: '127.0.0.1', port: Number(plain) }]);
cluster.on('error', () => {});
const ask = (...words) => cluster.call(...words);

const table = await ask('CLUSTER', 'SLOTS');
const ports = [...new Set(table.map(([, , [, port]]) => port))];
assert.equal(ports.length, 3);
assert(!ports.includes(Number(plain)));

// Keys of each node.
const keys = new Map(ports.map((port) => [port, []]));
for (let number = 0; number < 60; number += 1) {
  const slot = await ask('CLUSTER', 'KEYSLOT', `key-${number}`);
  const [, , [, port]] = table.find(([first, last]) => first <= slot && slot <= last);
  keys.get(port).push(`key-${number}`);
}
assert([...keys.values()].every((own) => own.length > 2));

for (const own of keys.values()) {
  for (const key of own.slice(0, 5)) {
    const [word, ticket] = await ask('LOCK', key);
    assert.equal(word, 'go');
    assert.equal((await ask('LOCK', key))[0], 'full');
    assert.equal(await ask('RELEASE', ticket), 'OK');
  }
}
for (let time = 0; time < 20; time += 1) {
  const [word, value, ticket] = await ask('RESERVE', 'all', 'TTL', '60000');
  assert.equal(word, 'go');
  assert(await ask('LOOKUP', value));
  assert.equal((await ask('REFRESH', ticket, 'TTL', '60000'))[0], 'ok');
  assert.equal(await ask('RELEASE', ticket), 'OK');
}
const locks = await Promise.all([...keys.values()].flat().map((key) => ask('LOCK', key)));
assert(locks.every(([word]) => word === 'go'));
const released = await Promise.all(locks.map(([, ticket]) => ask('RELEASE', ticket)));
assert(released.every((reply) => reply === 'OK'));
// Values and tickets are sent on by the nodes, so all of a pipeline may be about them.
const pipeline = cluster.pipeline();
for (let time = 0; time < 20; time += 1) pipeline.call('RESERVE', 'all', 'TTL', '60000');
const reserved = await pipeline.exec();
assert(reserved.every(([error, reply]) => error === null && reply[0] === 'go'));

// What a node had another takes over, and the client finds it.
const [key] = keys.get(Number(killed));
const [, , , , fence] = await ask('LOCK', key);
process.kill(Number(pid), 'SIGKILL');
let reply;
await until('the new owner is found', async () => {
  try {
    reply = await ask('LOCK', key);
    return reply[0] === 'go';
  } catch (error) {
    console.error(String(error));
    return false;
  }
});
assert(reply[4] > fence, 'fences grow');
assert.equal(await ask('RELEASE', reply[1]), 'OK');
for (const [, [, , ticket]] of reserved) {
  await until('the value is there', async () => {
    try {
      const [word] = await ask('REFRESH', ticket, 'TTL', '600000');
      assert.equal(word, 'ok');
      return true;
    } catch (error) {
      if (error.code === 'ERR_ASSERTION') throw error;
      console.error(String(error));
      return false;
    }
  });
}
console.log('all is well');
process.exit(0);
