"""Celery's Redis transport, made to survive a broker that dies while tasks run; must not know a task.

Two faults of kombu 5.7, both met within seconds when the server is restarted under load:

- It forgets a delivered message only after the server took the acknowledgement. If the server is gone at that moment
  (celery logs "Couldn't ack" and goes on), the message counts as in work for ever. Once as many are stuck as the worker
  has slots it never polls again, so it never notices its dead connection either: alive, and wedged. Measured: nothing
  consumed 60 s after one restart, with threads and prefork, with and without ``worker_disable_prefetch``.
- Closing a channel tries to give messages back through a connection that is gone; the second try ends in an
  ``AttributeError`` that nobody expects, and the worker's main process exits.

A message that is not given back or not acknowledged comes once more after the visibility timeout; its claim refuses it.
"""

from __future__ import annotations

from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport.virtual import QoS as WindowQoS


class ForgivingQoS(kombu_redis.QoS):
    """Counts a message as done whether or not the server could be told."""

    channel: Any
    _delivered: Any

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge on the server and free the slot. A fault goes to kombu, which logs it."""
        try:
            if self._is_orphaned():
                raise redis.ConnectionError("the channel of this message is closed")
            super().ack(delivery_tag)
        except BaseException:
            WindowQoS.ack(self, delivery_tag)
            raise

    def restore_unacked(self, client: Any = None) -> None:
        """Give delivered messages back to their queue, if there is anybody to give them to."""
        try:
            if not self._is_orphaned():
                super().restore_unacked(client)
        except redis.RedisError:  # away, or it takes no writes
            pass  # the visibility timeout gives them back
        finally:
            self._delivered.clear()

    def _is_orphaned(self) -> bool:
        connection = self.channel.connection
        return connection is None or connection.client is None


class ForgivingChannel(kombu_redis.Channel):
    """A channel with that window; one client for all it sends, where kombu makes one for each command (0.3 ms of CPU).

    A client is its pool and holds no connection, so nothing else changes; a new pool gets a new one.
    """

    QoS = ForgivingQoS
    _sender: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 - kombu's signature
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]  # its stubs know less
        if self._sender is None or self._sender.connection_pool is not self.pool:
            self._sender = super()._create_client()  # type: ignore[misc]
        return self._sender


class ForgivingTransport(kombu_redis.Transport):
    """To be named in ``broker_transport``; all else is kombu's own."""

    Channel: Any = ForgivingChannel


TRANSPORT = f"{ForgivingTransport.__module__}:{ForgivingTransport.__name__}"
"""The value for Celery's ``broker_transport``."""
