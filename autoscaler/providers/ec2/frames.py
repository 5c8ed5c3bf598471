"""The frames of JSON that the controller and its worker process exchange over pipes.

A frame is its length (four bytes, big-endian) and that many bytes of UTF-8 JSON.
"""

import json
import struct
from typing import BinaryIO

HEADER = struct.Struct(">I")
MAX_FRAME = 64 * 1024 * 1024
"""Bytes. A longer frame means that the two ends of the pipe are out of step."""


def encode(message: object) -> bytes:
    """Encode one frame. Raises ValueError if it is too long, TypeError if it is not JSON."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes, which is more than {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Return how many bytes follow. Raises ValueError if these are too many."""
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes, which is more than {MAX_FRAME}")
    return int(length)


def read_frame(stream: BinaryIO) -> object | None:
    """Read the next frame of a blocking stream; None at its end, or if it ends within a frame."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length = body_length(header)
    body = stream.read(length)
    if len(body) < length:
        return None
    message: object = json.loads(body)
    return message
