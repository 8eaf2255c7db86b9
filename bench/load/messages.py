"""What the coordinator and its workers say to each other: length-prefixed MessagePack over a pipe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from bench.load.prompts import Calibration
from bench.records import Case, Target

_LENGTH = struct.Struct("<I")


class Job(msgspec.Struct, tag=True, kw_only=True):
    """First message to a worker: what its trial is."""

    case: Case
    target: Target
    salt: str
    spill_dir: str
    worker: int
    workers: int


class Probe(msgspec.Struct, tag=True):
    """Send one or a few requests before any load: is the target there, and how does it count a prompt?"""


class Build(msgspec.Struct, tag=True):
    """Make prompts and open the spill file."""

    calibration: Calibration


class Go(msgspec.Struct, tag=True):
    """Send load from `start_ns` on."""

    start_ns: int


class Arm(msgspec.Struct, tag=True):
    """The window is `[t0_ns, t1_ns)`."""

    t0_ns: int
    t1_ns: int


class Halt(msgspec.Struct, tag=True):
    """Cut off what is in flight, parse and leave."""


ToWorker: TypeAlias = Job | Probe | Build | Go | Arm | Halt


class Probed(msgspec.Struct, tag=True):
    """The target answers."""

    calibration: Calibration


class Refused(msgspec.Struct, tag=True):
    """The target can't be used."""

    message: str
    hint: str | None = None


class Ready(msgspec.Struct, tag=True):
    """Prompts are made."""


class Progress(msgspec.Struct, tag=True):
    """A glance. `reads` counts pieces of bodies so far; `warm` slots have had a first token, `barren` ones failed again and
    again without one; `settled`: every request of the window has ended (steady), or all have (count-bound).
    """

    in_flight: int
    completed: int
    failed: int
    reads: int
    slots: int
    warm: int
    barren: int
    settled: bool


class Failed(msgspec.Struct, tag=True):
    """The worker itself can't go on."""

    message: str
    hint: str | None = None


class Done(msgspec.Struct, tag=True):
    """Columns are on disk; the worker leaves."""

    loop: str
    recycled: bool


FromWorker: TypeAlias = Probed | Refused | Ready | Progress | Failed | Done


def last_line(error: BaseException) -> str:
    """What an exception says, at most 200 characters of its last line."""
    return (str(error).strip().splitlines() or ["without a word"])[-1][:200]


def pack(message: ToWorker | FromWorker) -> bytes:
    """A message as bytes."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class Inbox:
    """Cuts a byte stream into messages of `kind`."""

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[object] = msgspec.msgpack.Decoder(kind)
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[object]:
        """Messages that `data` completes."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            size = _LENGTH.unpack_from(self._buffer)[0] + _LENGTH.size
            if len(self._buffer) < size:
                return
            body, self._buffer = self._buffer[_LENGTH.size : size], self._buffer[size:]
            yield self._decoder.decode(body)
