"""The client for asyncio, on `redis.asyncio.Redis`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import Any

import redis.asyncio

from ._core import Core, Session
from ._wire import Handle, LeaseLost


class Flag(asyncio.Event):
    def __bool__(self) -> bool:
        return self.is_set()


class Lease(Handle):
    """Something that is held until it is released, or lost. Every call raises `LeaseLost` then,
    and the task of its block is cancelled; `LeaseLost` comes out of the block."""

    _flag = Flag
    _task: asyncio.Task[Any] | None = None
    _is_cancelled = False

    async def release(self) -> None:
        """Give it back."""
        await self._core.give_back(self, "RELEASE", self.ticket)

    async def fail(self, reason: str = "") -> None:
        """Give it back as failed: a member is replaced, and a breaker counts it."""
        await self._core.give_back(self, "RELEASE", self.ticket, "FAIL", reason)

    async def renew(self) -> bool:
        """Whether the lease of a regulator goes on. If not, it has ended."""
        return bool(await self._core.renew(self))

    async def done(self, payload: str | bytes | None = None) -> None:
        """End a match well. The other party gets the payload."""
        words = () if payload is None else (payload,)
        await self._core.give_back(self, "DONE", self.ticket, *words)

    async def ended(self, wait: float = 10.0) -> str | None:
        """What the other party of a match ends it with; `LeaseLost` if it went away."""
        answer: str | None = await self._core.ended(self, wait)
        return answer

    def _tell(self, why: str) -> None:
        was = self.lost.is_set()
        super()._tell(why)
        if self._task is not None and self.lost.is_set() and not was:
            self._is_cancelled = True
            self._task.cancel()

    async def __aenter__(self) -> Lease:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._before = self._task.cancelling()
        if self.lost:
            self._tell(self.why)
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        task, self._task = self._task, None
        if self._is_cancelled and task is not None:
            if kind is None:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if task.uncancel() <= self._before and kind in (None, asyncio.CancelledError):
                raise LeaseLost(f"{self.kind} {self.name} ({self.ticket}): {self.why}") from error
        await self._core.sheltered(self._core.leave(self, kind))


class Asking:
    """What is to be asked for, at `acquire` or at the `async with` that this stands in."""

    def __init__(self, *ask: Any) -> None:
        self._core, *self._ask = ask
        self._mine: contextvars.ContextVar[tuple[Lease, ...]] = contextvars.ContextVar("mine")

    async def acquire(self) -> Lease:
        """Ask, and wait for the answer. The lease has to be released."""
        lease: Lease = await self._core.grant(*self._ask)
        return lease

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        self._mine.set((*self._mine.get(()), lease))
        return await lease.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        *rest, lease = self._mine.get()
        self._mine.set(tuple(rest))
        await lease.__aexit__(*error)


class Client(Core[Asking]):
    __doc__, library, lease, flat = Core.__doc__, redis.asyncio, Lease, staticmethod(lambda it: it)
    _loop: Any = None

    def _asking(self, *ask: Any) -> Asking:
        return Asking(self, *ask)

    def guard(self) -> asyncio.Lock:
        # Connections belong to a loop.
        if self._loop is not asyncio.get_running_loop():
            self.begin()
            self._loop, self._tasks = asyncio.get_running_loop(), set[Any]()
            self._guard, self._event = asyncio.Lock(), asyncio.Event()
        return self._guard

    def drop(self, session: Session) -> None:
        pass  # A loop does not cross a fork, and nor do its sockets.

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def nap(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()

    def wake(self) -> None:
        if self._loop is not None:
            self._event.set()

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.keep(), name="rideau")

    async def send(self, session: Session, words: tuple[Any, ...]) -> Any:
        # A cancelled task stops to wait at once, and the connection stays in order. The answer
        # to an ask says what there is to give back.
        task = self._beside(session.redis.execute_command(*words))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            if words[0] != "AWAIT":
                await asyncio.wait({task})
                if not task.cancelled() and not task.exception():
                    cancelled.answer = task.result()  # type: ignore[attr-defined]
            raise

    def _beside(self, work: Any) -> asyncio.Future[Any]:
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        task.cancelled() or task.exception()

    async def sheltered(self, work: Any) -> None:
        """Carry this out, also if the task is cancelled meanwhile."""
        await asyncio.shield(self._beside(work))

    async def close(self) -> None:
        """Give everything back, and end all connections."""
        await self.shut()
        if self.keeping is not None:
            await asyncio.wait({self.keeping}, timeout=5)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
