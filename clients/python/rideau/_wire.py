"""What the server answers, as values and errors. Nothing here does I/O."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable

from redis.exceptions import ResponseError


class Error(Exception):
    """Any error of this library. What else the server says is an error of redis-py."""


class LeaseLost(Error):
    """What was held is no longer held, or it is not sure that it is."""


class Refused(Error):
    """The server said no. Its sentence is the message; times are seconds."""

    def __init__(self, why: str, reason: str, retry_after: float | None = None,
                 id: str | None = None, outcome: str = "busy", waited: float = 0.0) -> None:
        super().__init__(why)
        self.reason, self.retry_after, self.id = reason, retry_after, id
        self.outcome, self.waited = outcome, waited

    @classmethod
    def of(cls, reply: list[Any]) -> Refused:
        """Word, waited, why, reason, retry_after, id; `none` has free and all values first."""
        word, is_none = str(reply[0]), reply[0] == "none"
        why, reason, after, id = (reply[3 if is_none else 2:] + [None] * 4)[:4]
        counts = f"{reply[1]} of {reply[2]} values are free" if is_none else word
        after = None if after is None else after / 1e6
        waited = 0.0 if is_none else (reply[1] or 0) / 1e6
        return cls(str(why or counts), str(reason or word), after, id, word, waited)


@dataclass(frozen=True)
class Retry:
    """Ask again after the pause that the server named: at most so many `times`, and only if the
    pause is no `longest` than this and ends within the wait."""

    times: int = 3
    longest: float = 5.0

    def pause(self, no: Refused, tries: int, left: float) -> float | None:
        if tries >= self.times or no.retry_after is None or no.retry_after > self.longest:
            return None
        pause = no.retry_after * (1 + random.random() / 10)
        return pause if pause < left else None


def now() -> float:
    """Seconds of a clock that goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def millis(seconds: float) -> int:
    return max(0, math.ceil(seconds * 1000))


def sentence(error: BaseException) -> str:
    """What the server said; redis-py takes some codes off."""
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error)


def typed(error: ResponseError) -> Exception:
    """Limits, and nodes that cannot answer now, are refusals, too."""
    text = sentence(error)
    code, id = text.split(" ", 1)[0], re.search(r"\[(d-\w+)\]$", text)
    is_no = code in ("BUSY", "READONLY", "CLUSTERDOWN", "MISCONF")
    return Refused(text, code.lower(), None, id and id[1]) if is_no else error


def is_pending(reply: Any) -> bool:
    """The wait of an `AWAIT` is over, and the ask goes on."""
    return reply[0] == "timeout" and len(reply) > 3 and reply[3] == "waits"


class Handle:
    """Something that is held: what the clients for threads and for asyncio have in common.
    Spans are seconds, and instants those of `rideau.now()`."""

    _flag: Callable[[], Any] = threading.Event

    def __init__(self, kind: str, name: str, reply: list[Any], sent: float, core: Any) -> None:
        rest = list(reply[1:])
        if kind == "value" and len(rest) > 6:
            rest.pop(0)  # The ticket of the ask, which was awaited.
        if kind in ("value", "pool", "match"):
            #: A value of a range, a member of a pool, or what the other party brought.
            self.value = str(rest.pop(0 if kind == "value" else 1))
        self.kind, self.name, self.ticket = kind, name, str(rest[0])
        #: It is renewed for so long each time, and held until then. Only values have these.
        self.ttl, self.expires = 0.0, math.inf
        if kind == "value":
            self.ttl, self.fence = rest[1] / 1e3, int(rest[4])
            self.expires = sent + self.ttl
        elif kind == "lock":
            #: The number of the unit, how many there are, and a number that only grows.
            self.unit, self.units, self.fence = (int(part) for part in rest[1:4])
        elif kind in ("match", "lease"):
            #: How much earlier than the other party it came.
            self.lead = rest[1] / 1e6
        #: Set while it is lost, or not sure to be held; true or false as a condition.
        self.lost: Any = self._flag()
        self.why, self._ended, self._pid, self._core = "", False, os.getpid(), core
        self._watchers: list[Callable[[Any], object]] = []

    @property
    def sure_until(self) -> float:
        """Up to when it may be used; infinite without a cluster or a time of its own."""
        until: float = self.expires if self.ttl else self._core.held.sure_until
        return until

    def watch(self, callback: Callable[[Any], object]) -> None:
        """Have this called with the handle whenever `lost` changes."""
        self._watchers.append(callback)

    def check(self) -> None:
        """Raise `LeaseLost` if it is lost, or not sure to be held."""
        if self._pid != os.getpid():
            raise LeaseLost(f"{self.ticket} belongs to process {self._pid}")
        if self.sure_until <= now():
            self._tell("it is not sure to be held any more")
        if self.lost.is_set():
            raise LeaseLost(f"{self.kind} {self.name} ({self.ticket}): {self.why}")

    def _tell(self, why: str) -> None:
        """It is lost; or, with an empty text, sure to be held again."""
        if self._ended or bool(why) == self.lost.is_set():
            return
        self.why = why
        self.lost.set() if why else self.lost.clear()
        for callback in self._watchers:
            try:
                callback(self)
            except Exception:
                logging.getLogger("rideau").exception("a callback of %s failed", self.ticket)

    def _end(self) -> bool:
        """It ends now; false if it has ended before."""
        is_first, self._ended = not self._ended, True
        self._core.held.leases.pop(self.ticket, None)
        return is_first


class Held:
    """The leases of a client, and what is asked of the server about them once a second."""

    def __init__(self, ttl: float | None) -> None:
        self.leases: dict[str, Any] = {}
        self.pending: set[str] = set()
        self.ttl, self.beats = ttl, 0
        self.begin()

    def begin(self) -> None:
        """A session was opened just now."""
        self.sure_until = math.inf if self.ttl is None else now() + self.ttl

    def commands(self) -> list[tuple[Any, ...]]:
        """What to ask. Thousands of leases are looked at less often."""
        self.beats += 1
        words: list[tuple[Any, ...]] = [("SURE",)]
        if self.ttl is not None:
            words.append(("SESSION", "RENEW"))
        for it in list(self.leases.values()):
            if it.ttl and it.expires - now() < it.ttl / 2:
                words.append(("REFRESH", it.ticket, "FENCE", it.fence, "TTL", millis(it.ttl)))
        if self.beats % min(4, 1 + len(self.leases) // 1000) == 0:
            words.append(("HELD",))
        return words

    def pause(self) -> float:
        """How long until that is due again."""
        leases = list(self.leases.values())
        due: list[float] = [it.expires - it.ttl / 2 if it.ttl else it.sure_until for it in leases]
        return min([1.0, (self.ttl or 3.0) / 3, *(max(0.02, at - now()) for at in due)])

    def apply(self, sent: float, before: list[str], commands: list[tuple[Any, ...]],
              replies: list[Any]) -> list[tuple[Any, ...]]:
        """Take the answers in. What comes back is to be sent: it ends what no call waits for."""
        seen: set[str] = set()
        is_whole, sure, orphans = False, -math.inf, list[tuple[Any, ...]]()
        for words, reply in zip(commands, replies):
            if words[0] == "REFRESH":
                self._renewed(words[1], sent, reply)
            elif words[0] == "HELD" and isinstance(reply, list):
                rows = [row for row in reply if len(row) > 1]
                is_whole, seen = len(rows) == len(reply), {row[2] for row in rows}
                for row in rows:
                    # A value is held by its own ticket, and ends with its time.
                    is_known = row[2] in self.leases or row[2] in self.pending or (
                        row[0] == "range" and row[3] != "waits")
                    if not is_known and row[4] > 10e6:
                        orphans.append(("CANCEL" if row[3] == "waits" else "RELEASE", row[2]))
            elif words[0] == "SURE" and isinstance(reply, int) and reply >= 0:
                sure = sent + reply / 1e3
            elif words[0] == "SESSION" and self.ttl is not None:
                sure = min(sure, sent + self.ttl) if sure > 0 else sent + self.ttl
        if sure > 0:
            # What was promised before still counts.
            self.sure_until = max(sure, self.sure_until if self.sure_until < math.inf else sure)
        for it in [self.leases[ticket] for ticket in before if ticket in self.leases]:
            if is_whole and it.ticket not in seen and not it.ttl:
                self.lose(it.ticket, "the server took it back")
            elif it.sure_until <= now():
                it._tell("it is not sure to be held any more")
            elif it.ticket in seen or it.ttl:
                it._tell("")
        return orphans

    def _renewed(self, ticket: str, sent: float, reply: Any) -> None:
        if isinstance(reply, list) and reply[0] == "ok" and ticket in self.leases:
            self.leases[ticket].expires = sent + reply[1] / 1e3
        elif isinstance(reply, ResponseError) and typed(reply) is reply:
            self.lose(ticket, sentence(reply))

    def take_lost(self, text: str) -> None:
        """What an answer `LOST ticket=why ...: sentence` names."""
        for word in text.split(": ", 1)[0].split(" ")[1:]:
            ticket, _, why = word.partition("=")
            self.lose(ticket, f"the server took it back: {why}")

    def lose(self, ticket: str, why: str) -> None:
        """This lease is lost for good."""
        if (lease := self.leases.pop(ticket, None)) is not None:
            lease._tell(why)

    def end(self, why: str) -> None:
        """The session is over, and so is all that it holds. Values are held for their time."""
        for ticket in [it.ticket for it in list(self.leases.values()) if not it.ttl]:
            self.lose(ticket, why)
