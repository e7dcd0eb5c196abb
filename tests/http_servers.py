"""HTTP servers of tests, on a free port of this machine while a block runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # Who has read enough hangs up on the rest: a page that moves on, an artifact that is too large.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def listening(server: HTTPServer) -> Iterator[str]:
    """Serve in a thread; the server's address."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def serving(handler: type[BaseHTTPRequestHandler], **attributes: Any) -> Any:
    """Serve by a handler whose class has these attributes, and which logs nothing."""
    quiet = {"log_message": lambda *_: None, **attributes}
    return listening(QuietServer(("127.0.0.1", 0), type("Handler", (handler,), quiet)))
