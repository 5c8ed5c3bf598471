"""Configures logging: JSON lines, or columns for a terminal.

Applies to the loggers of structlog and of the standard library. Times are UTC, secrets are redacted.
"""

import logging
import os
import sys
from enum import StrEnum
from typing import TextIO

import structlog
from structlog.typing import Processor

from autoscaler.observability.redaction import redact


class LogStyle(StrEnum):
    """The format of log lines. `auto` is console on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_CHATTY = ("asyncio", "botocore", "boto3", "urllib3", "aiohttp.access", "werkzeug")
"""Libraries of which only warnings are logged: their other lines do not help an operator."""


def configure_logging(
    level: LogLevel = LogLevel.INFO,
    style: LogStyle = LogStyle.AUTO,
    stream: TextIO | None = None,
) -> None:
    """Send all log lines of the process to `stream` (default: stderr). Can be called again."""
    out = sys.stderr if stream is None else stream
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(before, _renderers(out, style)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _formatter(before: list[Processor], renderers: list[Processor]) -> logging.Formatter:
    """Return the formatter for the lines of structlog and of the standard library."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *before],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            redact,
            *renderers,
        ],
    )


def _renderers(out: TextIO, style: LogStyle) -> list[Processor]:
    terminal = out.isatty()
    if style is LogStyle.JSON or (style is LogStyle.AUTO and not terminal):
        return [structlog.processors.JSONRenderer(ensure_ascii=True)]
    # The rich formatter would print the local variables of every frame, which can be secrets.
    plain = structlog.dev.plain_traceback
    # https://no-color.org: any value but an empty one.
    colors = terminal and not os.environ.get("NO_COLOR")
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=plain, timestamp_key="time"
        )
    ]
