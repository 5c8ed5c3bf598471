"""The process in which moto runs, so that its work does not block the lab's event loop.

Listens on a free port of loopback, writes the port as one line, and exits when its standard input is closed. So
it exits even if its parent is killed.
"""

import logging
import sys
import threading

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server


def main() -> None:
    """Serve until standard input is closed."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server(
        "127.0.0.1",
        0,
        DomainDispatcherApplication(create_backend_app),
        # moto's state has no locks of its own: one request at a time.
        threaded=False,
        request_handler=MotoRequestHandler,
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
