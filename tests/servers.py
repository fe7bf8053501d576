"""Web servers in threads of the test's process."""

import threading
from contextlib import contextmanager
from functools import partialmethod
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(handler):
    """A server with this class of handlers; its address is `server.url`."""
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def handler_of(folder):
    """The class of handlers that serve the files of a folder."""
    start = partialmethod(SimpleHTTPRequestHandler.__init__, directory=folder)
    return type("Handler", (SimpleHTTPRequestHandler,), {"__init__": start})
