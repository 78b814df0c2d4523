// A client of Rideau on node-redis: sessions, connections and asks.

import { randomUUID } from 'node:crypto';
import { ErrorReply, createClient } from 'redis';
import {
  Held, Lease, LeaseLost, Refused, RideauError, isPending, now, pauseBefore, typed,
} from './lease.js';

export { Lease, LeaseLost, Refused, RideauError, now };

// Milliseconds without an answer, after which all that a session held is lost, how long one
// answer may take, and how long one AWAIT waits.
const PATIENCE = 2500;
const TIMEOUT = 1500;
const SLICE = 2000;

const isAnswer = (error) => error instanceof ErrorReply;
const sleep = (span) => new Promise((resolve) => setTimeout(resolve, span));

/** What this comes to, within a time. */
async function within(span, work) {
  let timer;
  const late = new Promise((_, reject) => {
    // An answer that lies there already is read first.
    const fail = () => reject(new RideauError(`no answer within ${span} ms`));
    timer = setTimeout(() => setImmediate(() => setImmediate(fail)), span);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A command with those options that are set; a list repeats its word. */
function wordsOf(command, name, options) {
  const words = [command, name];
  for (const [word, value] of Object.entries(options)) {
    for (const one of [value].flat()) {
      if (one !== undefined && one !== null) words.push(word.toUpperCase(), one);
    }
  }
  return words;
}

/** A session of the server, and the connections that are attached to it. */
class Session {
  id = '';
  ended = '';
  heard = now();
  sick = 0;
  #main;
  #idle = [];
  #all = new Set();

  constructor(client, url) {
    Object.assign(this, { client, url });
  }

  /** A connection that is attached. It does not come back by itself once it is broken. */
  async connect() {
    const { socket, ...options } = this.client.redisOptions;
    const connection = createClient({
      url: this.url, ...options, disableOfflineQueue: true,
      socket: { connectTimeout: 2 * SLICE, ...socket, reconnectStrategy: false },
    });
    connection.on('error', () => {});
    this.#all.add(connection);
    try {
      await connection.connect();
      const words = this.id ? ['SESSION', 'ATTACH', this.id] : this.client.openWords;
      const reply = await within(2 * SLICE, connection.sendCommand(words));
      this.id ||= reply[0];
      if (this.ended) throw new RideauError(this.ended);
      return connection;
    } catch (error) {
      this.drop(connection);
      throw error;
    }
  }

  drop(connection) {
    this.#all.delete(connection);
    if (connection.isOpen) connection.destroy();
  }

  /** The connection of all commands that are answered at once. */
  main() {
    this.#main ??= this.connect().then((connection) => {
      const lose = () => {
        this.#main = undefined;
        this.#all.delete(connection);
      };
      connection.once('error', lose).once('end', lose);
      return connection;
    }).catch((error) => {
      this.#main = undefined;
      throw error;
    });
    return this.#main;
  }

  /** Use a connection that may wait. Some are kept for the next that does. */
  async waiting(use) {
    let connection;
    try {
      while ((connection = this.#idle.pop()) && !connection.isReady);
      connection ??= await this.connect();
      return await use(connection);
    } finally {
      if (connection?.isReady && !this.ended && this.#idle.length < 16) this.#idle.push(connection);
      else if (connection) this.drop(connection);
    }
  }

  /** Look after the leases. A session that cannot be reached in time is over. */
  async beat() {
    const { held } = this.client;
    const sent = now();
    const [before, commands] = [[...held.leases.keys()], held.commands()];
    let main;
    try {
      main = await within(TIMEOUT, this.main());
      const send = (words) => main.sendCommand(words.map(String)).catch((error) => error);
      const replies = await within(TIMEOUT, Promise.all(commands.map(send)));
      const isWrong = (it) => it instanceof Error
        && (!isAnswer(it) || it.message.includes('NOSUCH session'));
      const wrong = replies.find(isWrong);
      if (wrong) throw wrong;
      const orphans = held.apply(sent, before, commands, replies);
      [this.heard, this.sick] = [sent, 0];
      await within(TIMEOUT, Promise.all(orphans.map(send)));
    } catch (error) {
      this.sick ||= sent;
      if (isAnswer(error)) return this.end(error.message);
      this.#main = undefined;
      // Not at once: the session would end with its last connection.
      if (main) setTimeout(() => this.drop(main), PATIENCE).unref();
      const patience = /REFUSED/.test(`${error.code} ${error.message}`) ? 0 : PATIENCE;
      if (now() >= Math.max(this.sick + patience, this.heard + this.client.grace)) {
        this.end(`the server cannot be reached: ${error.message}`);
      }
    }
  }

  end(why) {
    if (this.ended) return;
    this.ended = why;
    this.client.held.end(why);
    for (const connection of this.#all) this.drop(connection);
  }
}

export class Client {
  #session;
  #opening;
  #timer;
  #isClosed = false;

  constructor(url = 'redis://127.0.0.1:7433', options = {}) {
    const { grace = 0, ttl, retry, name, ...redisOptions } = options;
    this.urls = [url].flat();
    Object.assign(this, { grace, retry, redisOptions, slice: SLICE });
    this.held = new Held(ttl);
    this.openWords = wordsOf('SESSION', 'OPEN', { ttl, grace: grace || undefined, name }).map(String);
  }

  lock(key, options = {}, use) {
    const { per, buckets, units, note } = options;
    return this.#have('lock', wordsOf('LOCK', key, { per, buckets, units, note }), options, use);
  }

  take(pool, options = {}, use) {
    const { flow, note } = options;
    return this.#have('pool', wordsOf('TAKE', pool, { flow, note }), options, use);
  }

  reserve(place, options = {}, use) {
    const { prefer, ttl = 60_000, key, unique, data, hint, note } = options;
    const words = wordsOf('RESERVE', place, { prefer, ttl, key, unique, data, hint, note });
    return this.#have('value', words, options, use);
  }

  regulate(regulator, options = {}, use) {
    return this.#have('lease', wordsOf('REG.ASK', regulator, { note: options.note }), options, use);
  }

  ask(broker, options = {}, use) {
    const { value, flow, note } = options;
    return this.#have('match', wordsOf('ASK', broker, { value, flow, note }), options, use);
  }

  offer(broker, options = {}, use) {
    const { value, flow, note } = options;
    return this.#have('match', wordsOf('OFFER', broker, { value, flow, note }), options, use);
  }

  async #have(kind, words, options, use) {
    const lease = await this.#grant(kind, words, options);
    if (!use) return lease;
    let result;
    try {
      result = await use(lease);
    } catch (error) {
      await lease.leave(error);
      throw error;
    }
    await lease.leave();
    return result;
  }

  /** The session, which is opened if there is none. */
  async session() {
    if (this.#isClosed) throw new RideauError('this client is closed');
    if (this.#session && !this.#session.ended) return this.#session;
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  async #open() {
    for (const [at, url] of this.urls.entries()) {
      const session = new Session(this, url);
      try {
        await session.main();
        this.#session = session;
        this.held.begin();
        // In a cluster a lease is sure for a time alone.
        await session.beat();
        this.#wake();
        return session;
      } catch (error) {
        if (at === this.urls.length - 1) throw error;
      }
    }
  }

  // Look after the leases again when that is due. It keeps no process alive without leases.
  #wake() {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => this.#keep(), this.#session?.sick ? 100 : this.held.pause());
    if (!this.held.leases.size) this.#timer.unref();
  }

  async #keep() {
    try {
      const session = this.#session;
      if (!session?.ended) await session?.beat();
      else if (this.held.leases.size) await (await this.session()).beat();
    } catch {
      this.held.apply(now(), [...this.held.leases.keys()], [], []);
    }
    this.#wake();
  }

  /** Send a command, and again if its connection broke. */
  async call(on, ...words) {
    const session = on ?? await this.session();
    const plain = words.map((word) => Buffer.isBuffer(word) ? word : String(word));
    const send = (connection) => connection.sendCommand(plain);
    for (let tries = 0; ; tries += 1) {
      try {
        if (words[0].startsWith('AWAIT')) return await session.waiting(send);
        return await send(await session.main());
      } catch (error) {
        if (!isAnswer(error)) {
          if (session.ended || tries > 1) throw error;
          continue;
        }
        // The answer to the first of two was lost.
        const isEnd = ['RELEASE', 'DONE'].includes(words[0]) && error.message.includes(' was released');
        if (tries && isEnd) return 'OK';
        if (!error.message.startsWith('LOST ')) {
          if (error.message.includes('NOSUCH session')) session.end(error.message);
          throw error;
        }
        this.held.takeLost(error.message);
      }
    }
  }

  /** Ask until it is granted, or refused for good. */
  async #grant(kind, words, { wait, signal }) {
    const until = wait === undefined ? Infinity : now() + wait;
    for (let tries = 0; ; tries += 1) {
      signal?.throwIfAborted();
      const session = await this.session();
      try {
        const left = wait === undefined ? undefined : Math.max(0, Math.ceil(until - now()));
        return await this.#grantOnce(session, kind, words, left, signal);
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof Refused) {
          const pause = pauseBefore(this.retry, error, tries, until - now());
          if (pause === null) throw error;
          await sleep(pause);
        } else if (!session.ended || tries > 1) throw error;
      }
    }
  }

  async #grantOnce(session, kind, words, left, signal) {
    // With an id it can be sent again, and `ASYNC` leaves its place in the queue to it whatever
    // becomes of the connection. Locks and values wait only if they are told to.
    const waits = left > 0 || (left === undefined && !['lock', 'value'].includes(kind));
    const ask = [...words, ...(kind === 'value' && waits ? [] : ['ID', randomUUID()]),
      ...(waits ? ['ASYNC'] : []), ...(left === undefined ? [] : ['WAIT', left])];
    let [ticket, sent] = ['', now()];
    // What waits is answered at once when it is cancelled.
    const cancel = () => ticket && this.#giveUp(session, ticket);
    signal?.addEventListener('abort', cancel);
    try {
      let reply = await this.call(session, ...ask);
      while (reply[0] === 'await' || isPending(reply)) {
        if (reply[0] === 'await') this.held.pending.add(ticket = reply[1]);
        if (signal?.aborted) await cancel();
        sent = now();
        reply = await this.call(session, 'AWAIT', ticket, SLICE);
      }
      if (reply[0] !== 'go') throw Refused.of(reply);
      const lease = new Lease(this, kind, words[1], reply, sent);
      this.held.leases.set(lease.ticket, lease);
      if (session.ended && !lease.ttl) this.held.lose(lease.ticket, session.ended);
      if (lease.ttl && ticket) {
        // Since when it is granted is not known.
        sent = now();
        const renewal = ['REFRESH', lease.ticket, 'FENCE', lease.fence, 'TTL', lease.ttl];
        lease.expires = sent + (await this.call(session, ...renewal))[1];
      }
      this.#wake();
      if (signal?.aborted) await lease.release();
      signal?.throwIfAborted();
      return lease;
    } catch (error) {
      throw isAnswer(error) ? typed(error) : error;
    } finally {
      signal?.removeEventListener('abort', cancel);
      this.held.pending.delete(ticket);
    }
  }

  async #giveUp(session, ticket) {
    const cancelled = await this.call(session, 'CANCEL', ticket).catch(() => 1);
    if (!cancelled) await this.call(session, 'RELEASE', ticket).catch(() => {});
  }

  /** Give everything back, and end all connections. */
  async close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const session = this.#session;
    if (!session || session.ended) return;
    const values = [...this.held.leases.values()].filter((it) => it.ttl && it.end());
    const ends = [...values.map((it) => ['RELEASE', it.ticket]), ['SESSION', 'CLOSE', session.id]];
    await Promise.allSettled(ends.map((words) => this.call(session, ...words)));
    session.end('the client was closed');
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}
