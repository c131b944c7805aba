"""The control channel: what our own code sends arrives; what anyone else writes is a forgery."""

import array
import json
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from trackside.workload import channel
from trackside.workload.channel import Channel, ChannelClosed, ChannelForged, ChannelTimeout, pair


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def test_a_message_arrives_as_it_was_sent(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    message = {"op": "calls", "ns": [1.5, 2], "text": "µs ✓ 𝄞", "nested": {"none": None}}
    Channel(theirs).send(message)
    assert ours.receive(5) == message


def test_messages_that_arrive_byte_by_byte_are_joined(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    for byte in frame(b'{"a":1}') + frame(b'{"b":2}'):
        theirs.send(bytes([byte]))
    assert [ours.receive(5), ours.receive(5)] == [{"a": 1}, {"b": 2}]


def test_descriptors_travel_with_a_message_and_are_the_same_file(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    read_end, write_end = os.pipe()
    Channel(theirs).send({"op": "arena"}, [write_end])
    ours.receive(5)
    received = ours.fds.pop(0)
    os.write(received, b"through it")
    assert os.read(read_end, 20) == b"through it"
    for fd in (read_end, write_end, received):
        os.close(fd)


@pytest.mark.parametrize(
    "raw",
    [
        b"VERDICT: faster\n" * 20,
        struct.pack("<I", 1) + b"{",
        struct.pack("<I", channel.MAX_MESSAGE + 1),
        frame(b"[1, 2]"),
        frame(b"null"),
        frame(b"{'a': 1}"),
        frame(b"\xff\xfe{}"),
        frame(b'{"a":' + b"1" * 5000 + b"}"),
        frame(b"[" * 200_000),
        frame(b'{"a":1} {"b":2}'),
    ],
    ids=[
        "text",
        "too-short",
        "too-long",
        "list",
        "null",
        "not-json",
        "not-utf8",
        "5000-digit-number",
        "deep-nesting",
        "two-documents",
    ],
)
def test_bytes_that_our_code_never_writes_are_a_forgery(
    ends: tuple[Channel, socket.socket], raw: bytes
) -> None:
    ours, theirs = ends
    theirs.sendall(raw)
    with pytest.raises(ChannelForged):
        ours.receive(5)


def test_a_length_beyond_the_limit_is_refused_before_memory_is_taken(
    ends: tuple[Channel, socket.socket],
) -> None:
    ours, theirs = ends
    theirs.sendall(struct.pack("<I", 0xFFFFFFFF))
    with pytest.raises(ChannelForged, match="4294967295"):
        ours.receive(5)


def test_half_a_message_is_a_time_out_not_a_hang(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(frame(b'{"a":1}')[:-2])
    with pytest.raises(ChannelTimeout):
        ours.receive(0.05)


def test_silence_is_a_time_out(ends: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(ChannelTimeout):
        ends[0].receive(0.02)


def test_a_peer_that_is_gone_is_told_from_a_silent_one(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.receive(5)
    with pytest.raises(ChannelClosed):
        ours.send({"op": "load"})


def test_unasked_bytes_are_seen_as_pending(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    assert not ours.pending()
    theirs.send(b"x")
    assert ours.pending()


def test_a_flood_of_descriptors_is_a_forgery_and_leaves_none_open(
    ends: tuple[Channel, socket.socket],
) -> None:
    ours, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    data = frame(b'{"a":1}' + b" " * 40)
    with open(os.devnull) as null:
        rights = array.array("i", [null.fileno()] * 8)
        for byte in data:
            theirs.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        with pytest.raises(ChannelForged, match="descriptors"):
            ours.receive(5)
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_a_channel_closes_descriptors_that_nobody_took(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    with open(os.devnull) as null:
        Channel(theirs).send({}, [null.fileno()])
    ours.receive(5)
    (left,) = ours.fds
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(left)


def test_a_lone_surrogate_becomes_text_that_a_record_can_hold(ends: tuple[Channel, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(frame(json.dumps({"message": "bad \ud800 name", "\udfff": "µ"}).encode()))
    message = ours.receive(5)
    assert message == {"message": "bad ? name", "?": "µ"}
    json.dumps(message, ensure_ascii=False).encode()
