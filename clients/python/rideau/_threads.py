"""The client for threads, on `redis.Redis`."""

from __future__ import annotations

import threading
import time
from typing import Any, Coroutine, TypeVar

import redis

from ._core import Core, Session
from ._wire import Handle

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("only redis.asyncio suspends")


class Flag(threading.Event):
    def __bool__(self) -> bool:
        return self.is_set()


class Lease(Handle):
    """Something that is held until it is released, or lost. Every call raises `LeaseLost` then."""

    _flag = Flag

    def release(self) -> None:
        """Give it back."""
        run(self._core.give_back(self, "RELEASE", self.ticket))

    def fail(self, reason: str = "") -> None:
        """Give it back as failed: a member is replaced, and a breaker counts it."""
        run(self._core.give_back(self, "RELEASE", self.ticket, "FAIL", reason))

    def renew(self) -> bool:
        """Whether the lease of a regulator goes on. If not, it has ended."""
        return bool(run(self._core.renew(self)))

    def done(self, payload: str | bytes | None = None) -> None:
        """End a match well. The other party gets the payload."""
        words = () if payload is None else (payload,)
        run(self._core.give_back(self, "DONE", self.ticket, *words))

    def ended(self, wait: float = 10.0) -> str | None:
        """What the other party of a match ends it with; `LeaseLost` if it went away."""
        answer: str | None = run(self._core.ended(self, wait))
        return answer

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        run(self._core.leave(self, kind))


class Asking:
    """What is to be asked for, at `acquire` or at the `with` that this stands in."""

    def __init__(self, *ask: Any) -> None:
        self._core, *self._ask = ask
        self._mine = threading.local()

    def acquire(self) -> Lease:
        """Ask, and wait for the answer. The lease has to be released."""
        lease: Lease = run(self._core.grant(*self._ask))
        return lease

    def __enter__(self) -> Lease:
        lease = self.acquire()
        self._mine.__dict__.setdefault("leases", []).append(lease)
        return lease

    def __exit__(self, *error: Any) -> None:
        self._mine.leases.pop().__exit__(*error)


class Client(Core[Asking]):
    __doc__, library, lease, flat = Core.__doc__, redis, Lease, staticmethod(
        lambda work: lambda connection: run(work(connection)))

    def begin(self) -> None:
        super().begin()
        self._guard, self._event = threading.RLock(), threading.Event()

    def _asking(self, *ask: Any) -> Asking:
        return Asking(self, *ask)

    def guard(self) -> Any:
        return self._guard

    def drop(self, session: Session) -> None:
        # redis-py shuts no socket down that another process has.
        pool = session.pool
        for it in [session.keeper, *pool._available_connections, *pool._in_use_connections]:
            it.disconnect()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def nap(self, seconds: float) -> None:
        self._event.wait(seconds)
        self._event.clear()

    def wake(self) -> None:
        self._event.set()

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=lambda: run(self.keep()), name="rideau", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Give everything back, and end all connections."""
        run(self.shut())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
