"""Compresses webhook bodies with a dictionary of the text that every workflow_job body repeats.

A body is mostly field names and URLs in a known order (octokit/webhooks, workflow_job). The dictionary is
bodies of each state of a job, the most frequent text last: a near match takes fewer bytes.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from threading import local
from typing import Final

import zstandard

_LEVEL = 3
"""As fast as level 1 on a body of 12 KB, with output a tenth smaller."""

_MAX_BODY_BYTES: Final = 2 * 2**20
"""Twice the largest delivery (1 MiB). A damaged row must not allocate gigabytes."""

DICTIONARY: Final = files(__package__).joinpath("workflow_job.dictionary").read_bytes()
"""Must never change: stored bodies can only be read with the dictionary that wrote them."""

_of_thread = local()
"""Holds a compressor for each thread, because a compressor is not thread-safe."""


def compress(body: bytes) -> bytes:
    """Return the body as one Zstandard frame that states the body's length."""
    return _compressor().compress(body)


def compress_all(bodies: Sequence[bytes]) -> list[bytes]:
    """Return each body as `compress` does.

    Releases the interpreter lock once for all bodies instead of once per body, because getting the
    lock back takes up to 5 ms while the event loop computes.
    """
    if len(bodies) < 2 or not any(bodies):
        return [compress(body) for body in bodies]
    frames = _compressor().multi_compress_to_buffer(list(bodies))
    return [frames[place].tobytes() for place in range(len(frames))]


def decompress(stored: bytes) -> bytes:
    """Return the original body.

    Raises: ValueError if the stored bytes are damaged.
    """
    try:
        length = zstandard.frame_content_size(stored)
        if not 0 <= length <= _MAX_BODY_BYTES:
            raise ValueError(f"the frame states no length up to {_MAX_BODY_BYTES} bytes")
        return zstandard.ZstdDecompressor(dict_data=_dictionary_data()).decompress(stored)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


@cache
def _dictionary_data() -> zstandard.ZstdCompressionDict:
    data = zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    data.precompute_compress(level=_LEVEL)
    return data


def _compressor() -> zstandard.ZstdCompressor:
    compressor: zstandard.ZstdCompressor | None = getattr(_of_thread, "compressor", None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=_dictionary_data())
        _of_thread.compressor = compressor
    return compressor
