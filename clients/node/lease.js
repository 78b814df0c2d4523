// What the server answers, as values and errors. Nothing here does I/O. Spans are milliseconds,
// and instants those of `now()`.

export class RideauError extends Error {
  name = this.constructor.name;
}

/** What was held is no longer held, or it is not sure that it is. */
export class LeaseLost extends RideauError {}

/** The server said no. Its sentence is the message. */
export class Refused extends RideauError {
  constructor(why, reason, { retryAfter = null, id = null, outcome = 'busy', waited = 0 } = {}) {
    super(why);
    Object.assign(this, { reason, retryAfter, id, outcome, waited });
  }

  // Word, waited, why, reason, retry_after, id; `none` has free and all values first.
  static of(reply) {
    const isNone = reply[0] === 'none';
    const [why, reason, after, id = null] = reply.slice(isNone ? 3 : 2);
    const text = why ?? (isNone ? `${reply[1]} of ${reply[2]} values are free` : reply[0]);
    const retryAfter = after == null ? null : after / 1e3;
    const waited = isNone ? 0 : (reply[1] ?? 0) / 1e3;
    return new Refused(text, reason ?? reply[0], { retryAfter, id, outcome: reply[0], waited });
  }
}

/** Limits, and nodes that cannot answer now, are refusals, too. */
export function typed(error) {
  const [code] = error.message.split(' ', 1);
  if (!['BUSY', 'READONLY', 'CLUSTERDOWN', 'MISCONF'].includes(code)) return error;
  const id = /\[(d-\w+)\]$/.exec(error.message)?.[1] ?? null;
  return new Refused(error.message, code.toLowerCase(), { id });
}

/** Ask again after the pause that the server named, if it is short enough. */
export function pauseBefore(retry, no, tries, left) {
  const { times = 0, longest = 5000 } = retry ?? {};
  if (tries >= times || no.retryAfter === null || no.retryAfter > longest) return null;
  const pause = no.retryAfter * (1 + Math.random() / 10);
  return pause < left ? pause : null;
}

const origin = Date.now() - performance.now();
let last = 0;

/** Milliseconds of a clock that goes on while the machine sleeps, and never back. */
export function now() {
  last = Math.max(last, performance.now(), Date.now() - origin);
  return last;
}

/** The wait of an `AWAIT` is over, and the ask goes on. */
export const isPending = (reply) => reply[0] === 'timeout' && reply[3] === 'waits';

/** Something that is held until it is released, or lost. */
export class Lease {
  #core;
  #abort = new AbortController();
  #watchers = [];
  lost = false;
  why = '';
  ended = false;

  constructor(core, kind, name, reply, sent) {
    this.#core = core;
    const rest = reply.slice(1);
    // The ticket of the ask, which was awaited.
    if (kind === 'value' && rest.length > 6) rest.shift();
    if (['value', 'pool', 'match'].includes(kind)) {
      [this.value] = rest.splice(kind === 'value' ? 0 : 1, 1);
    }
    Object.assign(this, { kind, name, ticket: rest[0], ttl: 0, expires: Infinity });
    if (kind === 'value') {
      Object.assign(this, { ttl: rest[1], expires: sent + rest[1], fence: rest[4] });
    } else if (kind === 'lock') {
      [, this.unit, this.units, this.fence] = rest;
    } else if (kind !== 'pool') {
      this.lead = rest[1] / 1e3;
    }
  }

  get signal() {
    return this.#abort.signal;
  }

  get sureUntil() {
    return this.ttl ? this.expires : this.#core.held.sureUntil;
  }

  watch(callback) {
    this.#watchers.push(callback);
  }

  check() {
    if (this.sureUntil <= now()) this.tell('it is not sure to be held any more');
    if (this.lost) throw new LeaseLost(`${this.kind} ${this.name} (${this.ticket}): ${this.why}`);
  }

  // It is lost; or, without a reason, sure to be held again.
  tell(why) {
    if (this.ended || Boolean(why) === this.lost) return;
    [this.lost, this.why] = [Boolean(why), why];
    if (why) this.#abort.abort(new LeaseLost(`${this.kind} ${this.name} (${this.ticket}): ${why}`));
    // What one throws is its own affair, as with an event.
    for (const watcher of this.#watchers) queueMicrotask(() => watcher(this));
  }

  end() {
    this.#core.held.leases.delete(this.ticket);
    const isFirst = !this.ended;
    this.ended = true;
    return isFirst;
  }

  release() {
    return this.#giveBack('RELEASE', this.ticket);
  }

  fail(reason = '') {
    return this.#giveBack('RELEASE', this.ticket, 'FAIL', reason);
  }

  done(payload) {
    return this.#giveBack('DONE', this.ticket, ...(payload === undefined ? [] : [payload]));
  }

  async #giveBack(...words) {
    this.check();
    if (!this.end()) return;
    try {
      await this.#core.call(null, ...words);
    } catch (error) {
      throw new LeaseLost(`${this.kind} ${this.name}: ${error.message}`, { cause: error });
    }
  }

  /** Whether the lease of a regulator goes on. If not, it has ended. */
  async renew() {
    this.check();
    const [word] = await this.#core.call(null, 'REG.CONTINUE', this.ticket);
    return word === 'go' || !this.end();
  }

  /** What the other party of a match ends it with; it throws `LeaseLost` if it went away. */
  async otherEnded(wait = 10_000) {
    const until = now() + wait;
    let reply;
    do {
      this.check();
      const left = Math.max(0, Math.min(until - now(), this.#core.slice));
      reply = await this.#core.call(null, 'AWAIT.END', this.ticket, Math.ceil(left));
      if (isPending(reply) && now() >= until) throw Refused.of(reply);
    } while (isPending(reply));
    this.end();
    if (reply[0] === 'down') throw new LeaseLost(`the other party went away: ${reply[1]}`);
    return reply[1] ?? null;
  }

  // The block of it ends, perhaps with an error.
  async leave(error) {
    if (this.ended && !this.lost) return;
    try {
      if (!error) await (this.kind === 'match' ? this.done() : this.release());
      else if (['lock', 'value'].includes(this.kind)) await this.release();
      else await this.fail(String(error.name ?? 'error').slice(0, 200));
    } catch (late) {
      if (!error) throw late;
    }
  }

  [Symbol.asyncDispose]() {
    return this.leave();
  }
}

/** The leases of a client, and what is asked of the server about them once a second. */
export class Held {
  leases = new Map();
  pending = new Set();
  #beats = 0;

  constructor(ttl) {
    this.ttl = ttl;
    this.begin();
  }

  /** A session was opened just now. */
  begin() {
    this.sureUntil = this.ttl ? now() + this.ttl : Infinity;
  }

  /** What to ask. Thousands of leases are looked at less often. */
  commands() {
    this.#beats += 1;
    const words = [['SURE'], ...(this.ttl ? [['SESSION', 'RENEW']] : [])];
    for (const it of this.leases.values()) {
      if (it.ttl && it.expires - now() < it.ttl / 2) {
        words.push(['REFRESH', it.ticket, 'FENCE', it.fence, 'TTL', it.ttl]);
      }
    }
    const every = Math.min(4, 1 + Math.floor(this.leases.size / 1000));
    return this.#beats % every ? words : [...words, ['HELD']];
  }

  /** How long until that is due again. */
  pause() {
    const due = [...this.leases.values()].map((it) => it.ttl ? it.expires - it.ttl / 2 : it.sureUntil);
    return due.reduce((pause, at) => Math.min(pause, Math.max(20, at - now())), Math.min(1000, (this.ttl || 3000) / 3));
  }

  /** Take the answers in. What comes back is to be sent: it ends what no call waits for. */
  apply(sent, before, commands, replies) {
    let [seen, sure] = [null, -Infinity];
    const orphans = [];
    commands.forEach((words, at) => {
      const reply = replies[at];
      if (words[0] === 'REFRESH') this.#renewed(words[1], sent, reply);
      else if (words[0] === 'HELD' && Array.isArray(reply)) {
        const rows = reply.filter((row) => row.length > 1);
        if (rows.length === reply.length) seen = new Set(rows.map((row) => row[2]));
        for (const [kind, , ticket, value, age] of rows) {
          // A value is held by its own ticket, and ends with its time.
          const isKnown = this.leases.has(ticket) || this.pending.has(ticket)
            || (kind === 'range' && value !== 'waits');
          if (!isKnown && age > 10e6) orphans.push([value === 'waits' ? 'CANCEL' : 'RELEASE', ticket]);
        }
      } else if (words[0] === 'SURE' && reply >= 0) sure = sent + reply;
      else if (words[0] === 'SESSION') {
        sure = sure > 0 ? Math.min(sure, sent + this.ttl) : sent + this.ttl;
      }
    });
    // What was promised before still counts.
    if (sure > 0) this.sureUntil = Math.max(sure, this.sureUntil < Infinity ? this.sureUntil : sure);
    for (const it of before.map((ticket) => this.leases.get(ticket)).filter(Boolean)) {
      if (seen && !seen.has(it.ticket) && !it.ttl) this.lose(it.ticket, 'the server took it back');
      else if (it.sureUntil <= now()) it.tell('it is not sure to be held any more');
      else if (it.ttl || seen?.has(it.ticket)) it.tell('');
    }
    return orphans;
  }

  #renewed(ticket, sent, reply) {
    const lease = this.leases.get(ticket);
    if (lease && reply?.[0] === 'ok') lease.expires = sent + reply[1];
    else if (reply instanceof Error && typed(reply) === reply) this.lose(ticket, reply.message);
  }

  /** What an answer `LOST ticket=why ...: sentence` names. */
  takeLost(text) {
    for (const word of text.split(': ', 1)[0].split(' ').slice(1)) {
      const [ticket, why] = word.split('=');
      this.lose(ticket, `the server took it back: ${why}`);
    }
  }

  /** This lease is lost for good. */
  lose(ticket, why) {
    const lease = this.leases.get(ticket);
    this.leases.delete(ticket);
    lease?.tell(why);
  }

  /** The session is over, and so is all that it holds. Values are held for their time. */
  end(why) {
    for (const it of [...this.leases.values()].filter((it) => !it.ttl)) this.lose(it.ticket, why);
  }
}
