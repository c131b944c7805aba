"""Framed JSON messages between the judge and its processes, with file descriptors passed alongside.

The peer may be hostile: lengths are bounded, anything that is not one JSON object is a forgery.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["Channel", "ChannelClosed", "ChannelForged", "ChannelTimeout", "pair"]

# A description of a few thousand state leaves fits; a peer cannot make us allocate more.
MAX_MESSAGE = 16 << 20
MAX_FDS = 8
_HEAD = struct.Struct("<I")


class ChannelClosed(Exception):
    """The peer is gone."""


class ChannelTimeout(Exception):
    """Nothing came in time."""


class ChannelForged(Exception):
    """Bytes that our own code at the other end never writes."""


def pair() -> tuple[Channel, socket.socket]:
    """A channel for this process and the raw end to hand to another."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours), theirs


class Channel:
    """One end of a stream socket that carries length-prefixed JSON objects.

    Args:
        from_judge: whether the judge is at the other end. Its paths need not be text, and stay as they are.
    """

    def __init__(self, sock: socket.socket, from_judge: bool = False) -> None:
        self.sock = sock
        self._from_judge = from_judge
        self.fds: list[int] = []
        """Descriptors that arrived and nobody took yet."""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        body = json.dumps(message, separators=(",", ":")).encode()
        data = _HEAD.pack(len(body)) + body
        try:
            if fds:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                sent = self.sock.sendmsg([data], rights)
                if sent < len(data):
                    self.sock.sendall(data[sent:])
            else:
                self.sock.sendall(data)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout: float | None) -> dict[str, Any]:
        deadline = None if timeout is None else time.monotonic() + timeout
        (length,) = _HEAD.unpack(self._exactly(_HEAD.size, deadline))
        if not 2 <= length <= MAX_MESSAGE:
            raise ChannelForged(f"message length {length}")
        body = self._exactly(length, deadline)
        try:
            message = json.loads(body)
            if b"\\u" in body and not self._from_judge:
                # A lone surrogate is legal JSON but no text: a record that held one could not be written.
                message = json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError) as error:
            # ValueError also stands for bytes that are not UTF-8, and for numbers of more than 4,300 digits.
            raise ChannelForged(f"not JSON: {body[:40]!r}") from error
        if not isinstance(message, dict):
            raise ChannelForged(f"not an object: {body[:40]!r}")
        return message

    def pending(self) -> bool:
        """Whether bytes wait that nobody asked for."""
        return bool(select.select([self.sock], [], [], 0)[0])

    def close(self) -> None:
        self.sock.close()
        self._drop_fds()

    def _drop_fds(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise ChannelTimeout
            self.sock.settimeout(left)
            try:
                data, fds, _flags, _addr = socket.recv_fds(self.sock, min(count, 1 << 20), MAX_FDS)
            except TimeoutError as error:
                raise ChannelTimeout from error
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            finally:
                if self.sock.fileno() >= 0:
                    self.sock.settimeout(None)
            self.fds.extend(fds)
            if len(self.fds) > MAX_FDS:
                # One with every byte would use up all that this process may open.
                self._drop_fds()
                raise ChannelForged(f"more than {MAX_FDS} descriptors that nobody asked for")
            if not data:
                raise ChannelClosed("end of stream")
            parts.append(data)
            count -= len(data)
        return b"".join(parts)
