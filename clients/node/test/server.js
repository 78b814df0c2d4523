// A server for a test, a proxy whose connections can be cut, and what operators do.

import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { promisify } from 'node:util';

const PROGRAM = process.env.RIDEAU_PROGRAM;
const CONFIG = `
[store]
kind = "memory"
[pool.one]
member = { list = ["m1"] }
[pool.two]
member = { list = ["m1", "m2"] }
[broker.desk]
[regulator.few]
valve = { kind = "open", max = 1 }
[range.office]
values = ["100-103"]
start = "free"
[lock."*"]
[limits]
keys_max = 3
`;

export const sleep = (span) => new Promise((resolve) => setTimeout(resolve, span));

export async function until(what, done) {
  for (let tries = 0; !(await done()); tries += 1) {
    if (tries > 3000) throw new Error(what);
    await sleep(10);
  }
}

const answers = (port) => new Promise((resolve) => {
  const socket = net.connect(port, '127.0.0.1', () => resolve(true) || socket.destroy());
  socket.on('error', () => resolve(false));
});

async function freePort() {
  const listener = net.createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  return port;
}

/** It ends with the test. */
export async function start(t, port) {
  port ??= await freePort();
  const folder = mkdtempSync(join(tmpdir(), 'rideau-'));
  const file = join(folder, 'rideau.toml');
  writeFileSync(file, `[server]\nlisten = ["127.0.0.1:${port}"]\nadmin = "none"\n${CONFIG}`);
  const log = openSync(join(folder, 'log'), 'w');
  const env = { ...process.env, XDG_STATE_HOME: folder };
  const child = spawn(PROGRAM, ['serve', '-c', file], { stdio: ['ignore', log, log], env });
  const server = {
    port,
    url: `redis://127.0.0.1:${port}`,
    cli: (...words) => promisify(execFile)(PROGRAM, ['--server', `127.0.0.1:${port}`, ...words]),
    kill: () => child.exitCode ?? child.signalCode ?? (child.kill('SIGKILL') && once(child, 'exit')),
  };
  t.after(async () => {
    await server.kill();
    rmSync(folder, { recursive: true });
  });
  await until('the server answers', () => answers(port));
  return server;
}

/** Between a client and a server. */
export async function proxy(t, to) {
  const sockets = new Set();
  let isSilent = false;
  const listener = net.createServer((one) => {
    const other = net.connect(to, '127.0.0.1');
    for (const [from, into] of [[one, other], [other, one]]) {
      sockets.add(from);
      from.on('data', (data) => isSilent || into.write(data));
      from.on('error', () => {}).on('close', () => into.destroy());
    }
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const cut = () => {
    listener.close();
    sockets.forEach((socket) => socket.destroy());
  };
  t.after(cut);
  const silence = () => {
    isSilent = true;
  };
  return { url: `redis://127.0.0.1:${listener.address().port}`, cut, silence };
}
