"""Compressed pages of the console."""

import gzip

import pytest

from autoscaler.server.operators.compression import accepts_gzip
from tests.server.test_console import Reader
from tests.server.test_console import reader as reader


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("gzip, deflate, br, zstd", True),
        ("GZIP;q=0.5", True),
        ("br, gzip ; q=1.0", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("deflate, br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*;q=0", False),
        ("x-gzip-like", False),
        (";;;,=,q=0", False),
    ],
)
def test_a_client_says_whether_it_takes_gzip(header: str, accepts: bool) -> None:
    assert accepts_gzip(header) is accepts


async def test_a_page_is_compressed_for_a_client_that_takes_it(reader: Reader) -> None:
    await reader.sign_in()
    reader.answers.world.queue(*range(100, 200))
    plain, small = "identity", "gzip"
    answers = {}
    for encoding in (plain, small):
        headers = {"Accept-Encoding": encoding}
        async with reader.http.get("/jobs", headers=headers, auto_decompress=False) as answer:
            answers[encoding] = await answer.read()
            assert answer.headers["Vary"] == "Accept-Encoding"
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert answer.headers.get("Content-Encoding", plain) == encoding
    assert gzip.decompress(answers[small]) == answers[plain]
    assert len(answers[small]) < len(answers[plain]) / 5
