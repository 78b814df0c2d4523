"""Locks, pools, ranges, brokers and regulators of a Rideau server, on redis-py.

`rideau.Client` is for threads, `rideau.asyncio.Client` for asyncio.
"""

from ._threads import Asking, Client, Lease
from ._wire import Error, LeaseLost, Refused, Retry, now

__all__ = ["Asking", "Client", "Error", "Lease", "LeaseLost", "Refused", "Retry", "now"]
