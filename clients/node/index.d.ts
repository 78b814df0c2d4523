import type { RedisClientOptions } from 'redis';

/** Any error of this library. What else the server says is an error of node-redis. */
export class RideauError extends Error {}

/** What was held is no longer held, or it is not sure that it is. */
export class LeaseLost extends RideauError {}

/** The server said no. Its sentence is the message; spans are milliseconds. */
export class Refused extends RideauError {
  /** The limit, or the rule of the queue, in one word. */
  readonly reason: string;
  /** After how many milliseconds a new ask can succeed; null if that is not known. */
  readonly retryAfter: number | null;
  /** What `rideau explain` takes. */
  readonly id: string | null;
  /** `full`, `timeout`, `shed`, `none` or `busy`. */
  readonly outcome: string;
  readonly waited: number;
}

/** Milliseconds of the clock that `sureUntil` is on. It goes on while the machine sleeps. */
export function now(): number;

/** Something that is held until it is released, or lost. Every call throws `LeaseLost` then. */
export class Lease {
  readonly kind: 'lock' | 'pool' | 'value' | 'lease' | 'match';
  readonly name: string;
  readonly ticket: string;
  /** Aborted with `LeaseLost` when it is lost, or not sure to be held. */
  readonly signal: AbortSignal;
  /** Whether it is lost, or not sure to be held. In a cluster it can become sure again. */
  readonly lost: boolean;
  readonly why: string;
  /** Up to when it may be used; infinite without a cluster or a time of its own. */
  readonly sureUntil: number;
  /** Have this called whenever `lost` changes. */
  watch(callback: (lease: this) => void): void;
  /** Throw `LeaseLost` if it is lost, or not sure to be held. */
  check(): void;
  /** Give it back. */
  release(): Promise<void>;
  /** Give it back as failed: a member is replaced, and a breaker counts it. */
  fail(reason?: string): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Lock extends Lease {
  /** The number of the unit, how many there are, and a number that only grows. */
  readonly unit: number;
  readonly units: number;
  readonly fence: number;
}

export interface Member extends Lease {
  readonly value: string;
}

/** A value of a range, renewed in the background for `ttl` milliseconds each time. */
export interface Value extends Lease {
  readonly value: string;
  readonly fence: number;
  readonly ttl: number;
  readonly expires: number;
}

/** A lease of a regulator. */
export interface Slot extends Lease {
  readonly lead: number;
  /** Whether it goes on. If not, it has ended. */
  renew(): Promise<boolean>;
}

/** Another party that was met at a broker. */
export interface Match extends Lease {
  /** What the other party brought, and how many milliseconds earlier than it this one came. */
  readonly value: string;
  readonly lead: number;
  /** End the match well. The other party gets the payload. */
  done(payload?: string | Buffer): Promise<void>;
  /** What the other party ends it with; `LeaseLost` if it went away. */
  otherEnded(wait?: number): Promise<string | null>;
}

export interface AskOptions {
  /** How many milliseconds to wait. Locks and values wait only if this is said. */
  wait?: number;
  /** Shown to others beside the holder. */
  note?: string;
  /** Stops the wait; nothing is held then. */
  signal?: AbortSignal;
}

export interface LockOptions extends AskOptions {
  per?: number;
  buckets?: number;
  units?: number;
}

export interface TakeOptions extends AskOptions {
  flow?: string;
}

export interface ReserveOptions extends AskOptions {
  /** Milliseconds for which it is renewed each time: 60,000 by default. */
  ttl?: number;
  prefer?: string | string[];
  key?: string | string[];
  unique?: string;
  data?: string | Buffer;
  hint?: string;
}

export interface MeetOptions extends AskOptions {
  value?: string | Buffer;
  flow?: string;
}

export interface ClientOptions extends RedisClientOptions {
  /** The session ends so many milliseconds after its last connection; at once by default. */
  grace?: number;
  /** It also ends when this process was stopped for so many milliseconds. */
  ttl?: number;
  /** Ask again after the pause that the server named, if it is no longer than `longest`. */
  retry?: { times: number; longest?: number };
  /** How the server lists the session. */
  name?: string;
}

type Use<L, T> = (lease: L) => T | Promise<T>;

/** A client of Rideau. What it holds belongs to a session, to which its connections are attached. */
export class Client {
  /** The address of the server, or those of nodes of one cluster, which are tried in turn. */
  constructor(url?: string | string[], options?: ClientOptions);
  /** Units of a key, for as long as the function runs; or until they are released. */
  lock<T>(key: string, options: LockOptions, use: Use<Lock, T>): Promise<T>;
  lock(key: string, options?: LockOptions): Promise<Lock>;
  /** A member of a pool, or of `@group`. */
  take<T>(pool: string, options: TakeOptions, use: Use<Member, T>): Promise<T>;
  take(pool: string, options?: TakeOptions): Promise<Member>;
  /** A value of a range. */
  reserve<T>(place: string, options: ReserveOptions, use: Use<Value, T>): Promise<T>;
  reserve(place: string, options?: ReserveOptions): Promise<Value>;
  /** A lease of a regulator. */
  regulate<T>(regulator: string, options: AskOptions, use: Use<Slot, T>): Promise<T>;
  regulate(regulator: string, options?: AskOptions): Promise<Slot>;
  /** Ask a broker for a worker that offers itself. */
  ask<T>(broker: string, options: MeetOptions, use: Use<Match, T>): Promise<T>;
  ask(broker: string, options?: MeetOptions): Promise<Match>;
  /** Offer oneself at a broker to clients that ask. */
  offer<T>(broker: string, options: MeetOptions, use: Use<Match, T>): Promise<T>;
  offer(broker: string, options?: MeetOptions): Promise<Match>;
  /** Give everything back, and end all connections. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
