// The client against the real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { createClient } from 'redis';
import { Client, LeaseLost, Refused } from '../index.js';
import { proxy, sleep, start, until } from './server.js';

const together = { concurrency: 4 };

function connect(t, url, options) {
  const client = new Client(url, options);
  t.after(() => client.close());
  return client;
}

async function isFree(server, key = 'job') {
  const other = new Client(server.url);
  try {
    return await other.lock(key, {}, () => true);
  } catch (error) {
    assert(error instanceof Refused, error);
    return false;
  } finally {
    await other.close();
  }
}

async function idsOf(server, what) {
  const observer = await createClient({ url: server.url }).connect();
  const lines = String(await observer.sendCommand(['CLIENT', 'LIST'])).split('\n');
  await observer.close();
  return lines.filter((line) => line.includes(what)).map((line) => /id=(\d+)/.exec(line)[1]);
}

test('the client', together, async (t) => {
  const each = (name, body) => t.test(name, async (t) => body(t, await start(t)));
  await Promise.all([
    each('holds a lock in its block, and says why it was refused', async (t, server) => {
      const client = connect(t, server.url);
      const result = await client.lock('job', { wait: 10_000 }, async (lease) => {
        assert.deepEqual([lease.unit, lease.units, lease.lost, lease.sureUntil], [1, 1, false, Infinity]);
        await assert.rejects(client.lock('job'), { name: 'Refused', reason: 'busy', retryAfter: null });
        const no = await client.lock('job', { wait: 20 }).catch((error) => error);
        assert(no instanceof Refused && no.reason === 'deadline' && no.retryAfter > 0, no);
        assert.match(no.id, /^d-/);
        return lease.fence;
      });
      const again = await client.lock('job');
      assert(again.fence > result);
      await again.release();
      await assert.rejects(client.lock('job', {}, () => { throw new TypeError('mine'); }), /mine/);
      assert(await isFree(server));
      const held = await Promise.all(['job', 'key-1', 'key-2'].map((key) => client.lock(key)));
      await assert.rejects(client.lock('one more'), { reason: 'busy', message: /keys_max/ });
      assert.equal(held.length, 3);
    }),
    each('lends members, and meets parties', async (t, server) => {
      const client = connect(t, server.url);
      const two = await Promise.all([1, 2].map(() => client.take('two', { wait: 5000 })));
      assert.deepEqual(two.map((lease) => lease.value).sort(), ['m1', 'm2']);
      await Promise.all(two.map((lease) => lease.release()));
      await assert.rejects(client.take('none'), /NOSUCH pool/);
      const work = client.offer('desk', { value: 'worker', wait: 20_000 }, async (match) => {
        await match.done(`${match.value} is done`);
      });
      await client.ask('desk', { value: 'order', wait: 20_000 }, async (match) => {
        assert.equal(match.value, 'worker');
        assert.equal(await match.otherEnded(), 'order is done');
      });
      await work;
      const gone = client.offer('desk', { wait: 20_000 }, () => { throw new Error('gone'); });
      const left = client.ask('desk', { wait: 20_000 }, (match) => match.otherEnded());
      await Promise.all([assert.rejects(left, LeaseLost), assert.rejects(gone, /gone/)]);
      await client.regulate('few', {}, async (lease) => {
        assert(await lease.renew());
        await assert.rejects(client.regulate('few', { wait: 10 }), Refused);
      });
    }),
    each('renews values in the background', async (t, server) => {
      const client = connect(t, server.url);
      for (const wait of [undefined, 1000]) {
        await client.reserve('office', { ttl: 6000, wait, key: 'mac:1', data: 'laptop' }, async (lease) => {
          const first = lease.expires;
          await until('it is renewed', () => lease.expires > first || assert(!lease.lost, lease.why));
          lease.check();
          assert.equal(lease.value, '100');
        });
      }
    }),
    each('tells of a revoked lease', async (t, server) => {
      const client = connect(t, server.url);
      const told = [];
      await assert.rejects(client.lock('job', {}, async (lease) => {
        lease.watch((it) => told.push(it.lost));
        await server.cli('revoke', lease.ticket);
        await once(lease.signal, 'abort');
        assert.throws(() => lease.check(), LeaseLost);
        assert(lease.signal.reason instanceof LeaseLost);
      }), LeaseLost);
      assert.deepEqual(told, [true]);
      await client.lock('job', {}, () => {});
    }),
    each('loses all with the server, and goes on with the next', async (t, server) => {
      const client = connect(t, server.url);
      const lease = await client.lock('job');
      await server.kill();
      await until('it is lost', () => lease.signal.aborted);
      await assert.rejects(lease.release(), LeaseLost);
      await assert.rejects(client.lock('job'));
      await start(t, server.port);
      await client.lock('job', {}, async () => assert(!await isFree(server)));
    }),
    ...['cut', 'silence'].map((how) => each(`loses all with the connection: ${how}`, async (t, server) => {
      const between = await proxy(t, server.port);
      const client = connect(t, between.url);
      const lease = await client.lock('job');
      const since = Date.now();
      between[how]();
      await until('it is lost', () => lease.lost);
      t.diagnostic(`told after ${Date.now() - since} ms`);
      assert.throws(() => lease.check(), LeaseLost);
    })),
    each('keeps the place of an ask whose connection breaks', async (t, server) => {
      const client = connect(t, server.url);
      const first = await client.lock('job');
      const wait = client.lock('job', { wait: 25_000 });
      await until('it waits', () => client.held.pending.size);
      await until('it is cut', async () => {
        const ids = await idsOf(server, 'cmd=await');
        await Promise.all(ids.map((id) => server.cli('kill', id)));
        return ids.length;
      });
      await first.release();
      await (await wait).release();
    }),
    each('leaves nothing of a wait that is aborted', async (t, server) => {
      const client = connect(t, server.url);
      const first = await client.lock('job');
      for (const pause of [0, 1, 3, 200]) {
        const stop = new AbortController();
        const wait = client.lock('job', { wait: 25_000, signal: stop.signal });
        setTimeout(() => stop.abort(), pause);
        await assert.rejects(wait, { name: 'AbortError' });
      }
      await assert.rejects(client.lock('job', { wait: 25_000, signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' });
      await first.release();
      assert(await isFree(server));
      assert.equal(client.held.pending.size, 0);
    }),
    each('serves many that wait', async (t, server) => {
      const client = connect(t, server.url);
      let [inside, served] = [0, 0];
      await Promise.all(Array.from({ length: 30 }, () => client.lock('job', { wait: 25_000 }, async () => {
        assert.equal(inside += 1, 1);
        await sleep(0);
        inside -= 1;
        served += 1;
      })));
      assert.equal(served, 30);
    }),
    each('follows the server with its retries', async (t, server) => {
      const client = connect(t, server.url, { retry: { times: 100, longest: 2000 } });
      const first = await client.take('one', { wait: 100 });
      setTimeout(() => first.release(), 300);
      const lease = await client.take('one', { wait: 5 }).catch((error) => error);
      assert(lease instanceof Refused, 'its wait is over');
      await (await client.take('one', { wait: 20_000 })).release();
    }),
    each('frees what a killed process held, and a stopped one knows', async (t, server) => {
      const script = `
        import { Client } from 'rideau-here';
        const client = new Client('${server.url}', { ttl: 1000 });
        const leases = [await client.lock('job'), await client.reserve('office', { ttl: 1000 })];
        console.log('held');
        process.stdin.once('data', () => {
          for (const lease of leases) try { lease.check(); } catch (error) { console.log(error.name); }
          process.kill(process.pid, 'SIGKILL');
        });`.replace('rideau-here', new URL('../index.js', import.meta.url).href);
      const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['pipe', 'pipe', 'inherit'] });
      t.after(() => child.kill('SIGKILL'));
      const said = [];
      child.stdout.on('data', (data) => said.push(String(data)));
      await until('it holds', () => said.length);
      child.kill('SIGSTOP');
      const client = connect(t, server.url);
      const lease = await client.lock('job', { wait: 25_000 });
      await until('the value is free', async () => {
        const value = await client.reserve('office');
        return value.value === '100';
      });
      child.stdin.write('\n');
      child.kill('SIGCONT');
      await once(child, 'exit');
      assert.equal(said.join(''), 'held\nLeaseLost\nLeaseLost\n');
      await lease.release();
    }),
  ]);
});
