"""HTTP servers of tests, on a free port of this machine while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any


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
    return listening(ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), quiet)))
