"""Sessions and asks, written once for threads and for asyncio.

A coroutine here awaits nothing but redis-py and what a flavour brings. In the flavour for
threads neither ever suspends, so the coroutine runs to its end in one step.
"""

from __future__ import annotations

import inspect
import os
import uuid
import weakref
from typing import Any, Generic, TypeVar

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry as RedisRetry

from ._wire import Handle, Held, LeaseLost, Refused, Retry, is_pending, millis, now, sentence, typed

BROKEN = (ConnectionError, TimeoutError, OSError)
A = TypeVar("A")
PATIENCE = 2.5  # Seconds without an answer, after which all that a session held is lost.


async def settle(result: Any) -> Any:
    """What redis-py returns, or what its coroutine does."""
    return await result if inspect.isawaitable(result) else result


def words_of(*words: object, **options: object) -> tuple[Any, ...]:
    """A command with those options that are set; a list repeats its word."""
    many = {name: it if isinstance(it, list) else [it] for name, it in options.items()}
    pairs = [(name.upper(), it) for name in many for it in many[name] if it is not None]
    return (*words, *(word for pair in pairs for word in pair))


class Session:
    """A session of the server, and the connections that are attached to it."""

    def __init__(self, core: Core[Any], url: str) -> None:
        self.core, self.id, self.ended, self.heard, self.sick = core, "", "", now(), 0.0
        options = {"decode_responses": True, "encoding_errors": "surrogateescape",
                   "socket_connect_timeout": 5.0, **core.options}
        options |= {"redis_connect_func": core.flat(self._attach),
                    "retry": RedisRetry(NoBackoff(), 0)}
        self.pool: Any = core.library.ConnectionPool.from_url(url, **options)
        self.redis: Any = core.library.Redis(connection_pool=self.pool)
        # The connection that looks after the leases does not wait for long.
        kwargs = self.pool.connection_kwargs
        timeout = min(1.5, kwargs.get("socket_timeout") or 1.5)
        short = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        self.keeper: Any = self.pool.connection_class(**{**kwargs, **short})

    async def _attach(self, connection: Any) -> None:
        """What each new connection does first."""
        await settle(connection.on_connect())
        words = ("SESSION", "ATTACH", self.id) if self.id else self.core.open_words
        await settle(connection.send_command(*words))
        reply = await settle(connection.read_response())
        self.id = self.id or reply[0]

    async def pipeline(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """The answers to these, errors among them."""
        await settle(self.keeper.connect())
        await settle(self.keeper.send_packed_command(self.keeper.pack_commands(commands)))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await settle(self.keeper.read_response()))
            except ResponseError as error:
                if "NOSUCH session" in str(error):
                    raise
                replies.append(error)
        return replies

    async def beat(self) -> None:
        """Look after the leases. A session that cannot be reached in time is over."""
        held, sent = self.core.held, now()
        before, commands = list(held.leases), held.commands()
        try:
            orphans = held.apply(sent, before, commands, await self.pipeline(commands))
            self.heard, self.sick = sent, 0.0
            if orphans:
                await self.pipeline(orphans)
        except BROKEN as error:
            self.sick = self.sick or sent
            await settle(self.keeper.disconnect())
            patience = 0.0 if "refused" in str(error) else PATIENCE
            if now() >= max(self.sick + patience, self.heard + self.core.grace):
                await self.end(f"the server cannot be reached: {error}")
        except RedisError as error:
            await self.end(sentence(error))

    async def end(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self.core.held.end(why)
            await settle(self.keeper.disconnect())
            await settle(self.pool.disconnect())


class Core(Generic[A]):
    """A client of Rideau. One for a process is enough. What it holds belongs to a session of the
    server, to which all its connections are attached.

    `urls`: one, or those of several nodes of a cluster, which are tried in turn.
    `grace`: the session ends so long after its last connection; at once by default.
    `ttl`: it also ends when this process was stopped for so long.
    `retry`: ask again after refusals. `name`: how the server lists it.
    Other options are those of `redis.Redis`, as `password` or `ssl_ca_certs`.
    """

    library: Any
    lease: type[Handle]

    def __init__(self, *urls: str, grace: float = 0.0, ttl: float | None = None,
                 retry: Retry | None = None, name: str | None = None, **options: Any) -> None:
        self.urls, self.options, self.retry = urls or ("redis://127.0.0.1:7433",), options, retry
        self.grace, self.ttl = grace, ttl
        self.open_words = words_of("SESSION", "OPEN", ttl=ttl and millis(ttl),
                                   grace=millis(grace) or None, name=name)
        # Waits are cut, so that no time-out of a socket is reached.
        self.slice = millis(min(2.0, (options.get("socket_timeout") or 5.0) / 2))
        self.begin()
        clients.add(self)

    def begin(self) -> None:
        """Begin as in a process, or a loop, of its own."""
        self.held, self.session, self.closed = Held(self.ttl), None, False
        self.keeping: Any = None

    session: Session | None

    def lock(self, key: str, *, wait: float | None = None, per: int | None = None,
             buckets: int | None = None, units: int | None = None, note: str | None = None) -> A:
        """Units of a key. Without `wait` it is refused at once if none is free."""
        words = words_of("LOCK", key, per=per, buckets=buckets, units=units, note=note)
        return self._asking("lock", words, wait)

    def take(self, pool: str, *, wait: float | None = None, flow: str | None = None,
             note: str | None = None) -> A:
        """A member of a pool, or of `@group`."""
        return self._asking("pool", words_of("TAKE", pool, flow=flow, note=note), wait)

    def reserve(self, place: str, *, wait: float | None = None, ttl: float = 60.0,
                prefer: list[str] | None = None, key: str | list[str] | None = None,
                unique: str | None = None, data: str | bytes | None = None,
                hint: str | None = None, note: str | None = None) -> A:
        """A value of a range, renewed in the background for `ttl` seconds each time."""
        words = words_of("RESERVE", place, prefer=prefer, ttl=millis(ttl), key=key,
                         unique=unique, data=data, hint=hint, note=note)
        return self._asking("value", words, wait)

    def regulate(self, name: str, *, wait: float | None = None, note: str | None = None) -> A:
        """A lease of a regulator."""
        return self._asking("lease", words_of("REG.ASK", name, note=note), wait)

    def ask(self, broker: str, value: str | bytes | None = None, *, wait: float | None = None,
            flow: str | None = None, note: str | None = None) -> A:
        """Ask a broker for a worker that offers itself."""
        words = words_of("ASK", broker, value=value, flow=flow, note=note)
        return self._asking("match", words, wait)

    def offer(self, broker: str, value: str | bytes | None = None, *, wait: float | None = None,
              flow: str | None = None, note: str | None = None) -> A:
        """Offer oneself at a broker to clients that ask."""
        words = words_of("OFFER", broker, value=value, flow=flow, note=note)
        return self._asking("match", words, wait)

    # What a flavour brings.
    def _asking(self, kind: str, words: tuple[Any, ...], wait: float | None) -> A:
        raise NotImplementedError

    flat: Any   # a coroutine function as redis-py takes it
    guard: Any  # a lock, with which one at a time opens a session
    drop: Any   # close the connections of a parent's session
    sleep: Any  # for so many seconds
    nap: Any    # the same, or until it is woken
    wake: Any   # wake it
    start: Any  # have `keep` run beside everything else

    async def now_session(self) -> Session:
        """The session, which is opened if there is none."""
        guard = self.guard()
        await settle(guard.acquire())
        try:
            if self.closed:
                raise ConnectionError("this client is closed")
            if self.session is None or self.session.ended:
                self.session = await self._opened()
                self.held.begin()
                await self.session.beat()  # In a cluster a lease is sure for a time alone.
            if self.keeping is None:
                self.keeping = self.start()
            return self.session
        finally:
            guard.release()

    async def _opened(self) -> Session:
        for url in self.urls * 2:
            session = Session(self, url)
            try:
                await settle(session.keeper.connect())
                return session
            except BROKEN as error:
                broken = error
        raise broken

    async def keep(self) -> None:
        """Look after the leases for as long as the client is used."""
        while not self.closed:
            is_sick = self.session is not None and self.session.sick
            await self.nap(0.1 if is_sick else self.held.pause())
            try:
                if self.session and not self.session.ended:
                    await self.session.beat()
                elif self.held.leases and not self.closed:
                    await (await self.now_session()).beat()
            except (RedisError, OSError):
                self.held.apply(now(), list(self.held.leases), [], [])

    async def call(self, session: Session | None, *words: Any) -> Any:
        """Send a command, and again if its connection broke."""
        session, tries = session or await self.now_session(), 0
        while True:
            try:
                return await self.send(session, words)
            except BROKEN:
                tries += 1
                if session.ended or tries > 2:
                    raise
            except ResponseError as error:
                text = sentence(error)
                if tries and words[0] in ("RELEASE", "DONE") and " was released" in text:
                    return "OK"  # The answer to the first of two was lost.
                if not text.startswith("LOST "):
                    if "NOSUCH session" in text:
                        await session.end(text)
                    raise
                self.held.take_lost(text)

    async def grant(self, kind: str, words: tuple[Any, ...], wait: float | None) -> Any:
        """Ask until it is granted, or refused for good."""
        until, tries = float("inf") if wait is None else now() + wait, 0
        while True:
            session = await self.now_session()
            try:
                left = None if wait is None else max(0.0, until - now())
                return await self._grant_once(session, kind, words, left)
            except Refused as no:
                pause = self.retry and self.retry.pause(no, tries, until - now())
                if pause is None:
                    raise
                await self.sleep(pause)
            except (ResponseError, *BROKEN):
                # It is asked again if the server was started again meanwhile.
                if not session.ended or tries > 2:
                    raise
            tries += 1

    async def _grant_once(self, session: Session, kind: str, words: tuple[Any, ...],
                          left: float | None) -> Any:
        # With an id it can be sent again, and `ASYNC` leaves its place in the queue to it
        # whatever becomes of the connection. Locks and values wait only if they are told to.
        waits = bool(left) or left is None and kind not in ("lock", "value")
        named = () if kind == "value" and waits else ("ID", uuid.uuid4().hex)
        words = (*words, *named, *(("ASYNC",) if waits else ()))
        limit = () if left is None else ("WAIT", millis(left))
        sent, ticket = now(), ""
        try:
            reply = await self.call(session, *words, *limit)
            while reply[0] == "await" or is_pending(reply):
                if reply[0] == "await":
                    self.held.pending.add(ticket := reply[1])
                sent = now()
                reply = await self.call(session, "AWAIT", ticket, self.slice)
            if reply[0] != "go":
                raise Refused.of(reply)
            lease = self.lease(kind, words[1], reply, sent, self)
            self.held.leases[lease.ticket] = lease
            if session.ended and not lease.ttl:
                self.held.lose(lease.ticket, session.ended)
            if lease.ttl and ticket:
                await self._hold_on(session, lease)
            if lease.ttl:
                self.wake()
            return lease
        except ResponseError as error:
            raise typed(error) from None
        except Refused:
            raise
        except BaseException as error:
            late = getattr(error, "answer", "")
            ticket = late[1] if late and late[0] in ("go", "await") else ticket
            if not late or ticket:
                await self.sheltered(self._abandon(session, words, ticket))
            raise
        finally:
            self.held.pending.discard(ticket)

    async def _hold_on(self, session: Session, lease: Handle) -> None:
        """Renew a value that was waited for: since when it is granted is not known."""
        words = ("REFRESH", lease.ticket, "FENCE", lease.fence, "TTL", millis(lease.ttl))
        try:
            sent = now()
            reply = await self.call(session, *words)
            lease.expires = sent + reply[1] / 1e3
        except BaseException:
            await self.sheltered(self.leave(lease, BaseException))
            raise

    async def send(self, session: Session, words: tuple[Any, ...]) -> Any:
        return session.redis.execute_command(*words)

    async def sheltered(self, work: Any) -> None:
        await work

    async def _abandon(self, session: Session, words: tuple[Any, ...], ticket: str) -> None:
        """No call waits for this any more, so nothing of it may be held."""
        try:
            if not ticket:
                reply = await self.call(session, *words, "WAIT", 0)
                ticket = reply[1] if reply[0] in ("go", "await") else ""
            if ticket and not await self.call(session, "CANCEL", ticket):
                await self.call(session, "RELEASE", ticket)
        except (RedisError, OSError):
            pass  # It ends with the session, or the beats find it.

    async def give_back(self, lease: Handle, *words: Any) -> None:
        lease.check()
        if lease._end():
            try:
                await self.call(None, *words)
            except (RedisError, OSError) as error:
                raise LeaseLost(f"{lease.kind} {lease.name}: {sentence(error)}") from error

    async def leave(self, lease: Handle, kind: type[BaseException] | None) -> None:
        """The block of a lease ends, perhaps with an error."""
        if lease._pid != os.getpid() or lease._ended and not lease.lost.is_set():
            return
        fail = ("FAIL", kind.__name__) if kind and lease.kind not in ("lock", "value") else ()
        done = lease.kind == "match" and kind is None
        try:
            await self.give_back(lease, "DONE" if done else "RELEASE", lease.ticket, *fail)
        except LeaseLost:
            if kind is None:
                raise

    async def renew(self, lease: Handle) -> bool:
        lease.check()
        reply = await self.call(None, "REG.CONTINUE", lease.ticket)
        return bool(reply[0] == "go") or not lease._end()

    async def ended(self, lease: Handle, wait: float) -> str | None:
        until = now() + wait
        while True:
            lease.check()
            left = min(millis(until - now()), self.slice)
            reply = await self.call(None, "AWAIT.END", lease.ticket, left)
            if not is_pending(reply):
                break
            if now() >= until:
                raise Refused(str(reply[2]), "waits", None, None, "timeout", wait)
        lease._end()
        if reply[0] == "down":
            raise LeaseLost(f"the other party went away: {reply[1]}")
        return str(reply[1]) if len(reply) > 1 else None

    async def shut(self) -> None:
        self.closed = True
        self.wake()
        session, self.session = self.session, None
        if session is not None and not session.ended:
            try:
                values = [it for it in self.held.leases.values() if it.ttl]
                ends = [("RELEASE", it.ticket) for it in values if it._end()]
                await session.pipeline([*ends, ("SESSION", "CLOSE", session.id)])
            except (RedisError, OSError):
                pass
            await session.end("the client was closed")


clients: weakref.WeakSet[Core[Any]] = weakref.WeakSet()


def forked() -> None:
    """A child has neither the leases nor the connections of its parent, whose session goes on."""
    for client in list(clients):
        session = client.session
        client.begin()
        if session is not None:
            session.ended = "it belongs to another process"
            client.drop(session)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)
