// Nodes of a cluster as the cluster client of node-redis sees them, with its default settings.
// One node is killed meanwhile.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [folder, plain, killed, pid] = process.argv.slice(2);
const { createClient, createCluster } = createRequire(`${folder}/`)('redis');

async function until(what, done) {
  const limit = Date.now() + 60_000;
  while (!(await done())) {
    assert(Date.now() < limit, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const cluster = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${plain}` }] });
cluster.on('error', () => {});
await cluster.connect();
// The program says which word is the key.
const ask = (...words) => cluster.sendCommand(words[1], false, words);

const table = await cluster.sendCommand(undefined, true, ['CLUSTER', 'SLOTS']);
const nodes = new Map();
for (const [, , [host, port]] of table) {
  if (nodes.has(port)) continue;
  const node = createClient({ socket: { host, port } });
  node.on('error', () => {});
  nodes.set(port, await node.connect());
}
assert.equal(nodes.size, 3);
assert(!nodes.has(Number(plain)));

async function slotOf(key) {
  return Number(await cluster.sendCommand(undefined, true, ['CLUSTER', 'KEYSLOT', key]));
}

// A number of all nodes.
async function total(name) {
  const texts = [...nodes.values()].map((node) => node.sendCommand(['INFO', 'cluster']));
  const found = (await Promise.all(texts)).map((text) => {
    const [, count] = new RegExp(`cluster_${name}:(\\d+)`).exec(String(text));
    return Number(count);
  });
  return found.reduce((sum, count) => sum + count, 0);
}

// Three keys of each node.
const keys = new Map([...nodes.keys()].map((port) => [port, []]));
for (let number = 0; number < 100; number += 1) {
  const key = `key-${number}`;
  const slot = await slotOf(key);
  const [, , [, port]] = table.find(([first, last]) => first <= slot && slot <= last);
  if (keys.get(port).length < 3) keys.get(port).push(key);
}
const all = [...keys.values()].flat();
assert.equal(all.length, 9);

// Each command goes to the node that decides, and no node sends it on.
const before = [await total('hops_out'), await total('redirects')];
for (const key of all) {
  const [word, ticket] = await ask('LOCK', key);
  assert.equal(word, 'go');
  assert.equal((await ask('LOCK', key))[0], 'full');
  assert.equal(String(await ask('RELEASE', ticket)), 'OK');
}
for (let time = 0; time < 30; time += 1) {
  const [word, , ticket] = await ask('RESERVE', 'all', 'TTL', '60000');
  assert.equal(word, 'go');
  assert.equal((await ask('REFRESH', ticket, 'TTL', '60000'))[0], 'ok');
  assert.equal(String(await ask('RELEASE', ticket)), 'OK');
}

// Many at once, for all nodes.
const locks = await Promise.all(all.map((key) => ask('LOCK', key)));
assert(locks.every(([word]) => word === 'go'));
const released = await Promise.all(locks.map(([, ticket]) => ask('RELEASE', ticket)));
assert(released.every((reply) => String(reply) === 'OK'));
assert.deepEqual([await total('hops_out'), await total('redirects')], before);

// Without a key it goes to any node, which sends it on, or executes it for the ticket.
await until('it is redirected', async () => {
  const [word, ticket] = await cluster.sendCommand(undefined, false, ['LOCK', all[0]]);
  assert.equal(word, 'go');
  const reply = await cluster.sendCommand(undefined, false, ['RELEASE', ticket]);
  assert.equal(String(reply), 'OK');
  return (await total('redirects')) > before[1];
});

// What a node had another takes over, and the client finds it.
const [key] = keys.get(Number(killed));
const [, , , , fence] = await ask('LOCK', key);
const values = [];
for (let time = 0; time < 20; time += 1) values.push(await ask('RESERVE', 'all', 'TTL', '600000'));
nodes.get(Number(killed)).destroy();
nodes.delete(Number(killed));
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
assert.equal(String(await ask('RELEASE', reply[1])), 'OK');
for (const [, , ticket] of values) {
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
