"""Telling the figures again and again: the log, a file and an endpoint for Prometheus.

Invariant: whatever fails once the monitor runs is a line in the log, and the program goes on; what
is wrong with the arguments is an error before anything starts.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from types import TracebackType

from . import _figures, _metrics
from ._errors import DrystoneError
from ._figures import Device, text_of_bytes
from ._write import write

# How long the end of a monitor may take.
STOP_S = 5.0
# How long a peer may take to send its request, or to take the answer; and how many are served at
# one time.
REQUEST_S = 5.0
REQUESTS_MAX = 8


class Monitor:
    """A monitor that runs until `stop`. See `drystone.monitor`."""

    def __init__(
        self, interval_s: float, logger: logging.Logger | None,
        file: str | os.PathLike[str] | None, port: int | None, address: str,
    ) -> None:
        if not 0 < interval_s <= threading.TIMEOUT_MAX:
            raise DrystoneError(f"an interval of {interval_s} s: it must be above 0")
        _figures.route()
        self._interval_s = interval_s
        self._logger = logger or logging.getLogger("drystone")
        self._file = file
        self._process = os.getpid()
        self._calls: dict[int, int] = {}
        self._stopped = threading.Event()
        self._write()
        self._server = None if port is None else _serve(address, port)
        self._thread = threading.Thread(target=self._run, name="drystone-monitor", daemon=True)
        self._thread.start()
        # Before the interpreter takes away what the thread uses.
        atexit.register(self.stop)

    @property
    def port(self) -> int | None:
        """Where Prometheus' figures are served."""
        return self._server.server_address[1] if self._server else None

    def stop(self) -> None:
        """Ends it; once more is no error. The file stays as it is."""
        atexit.unregister(self.stop)
        self._stopped.set()
        server, self._server = self._server, None
        # A forked child has inherited the socket, but no thread that could be waited for.
        is_here = os.getpid() == self._process
        if server is not None:
            if is_here:
                server.shutdown()
            server.server_close()
        if is_here:
            self._thread.join(STOP_S)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while True:
            try:
                for device in _figures.totals():
                    self._logger.info("%s", self._line(device))
                self._write()
            except DrystoneError as error:
                self._logger.warning("drystone cannot be monitored: %s", error)
            if self._stopped.wait(self._interval_s):
                return

    def _write(self) -> None:
        if self._file is not None:
            write(self._file, _metrics.metrics())

    def _line(self, device: Device) -> str:
        reserved, active, peak = (
            text_of_bytes(count) for count in (
                device.now("reserved_bytes"), device.now("active_bytes"),
                device.stats["reserved_bytes"]["peak"]))
        calls = device.stats["driver_calls"]
        new = calls - self._calls.get(device.ordinal, 0)
        self._calls[device.ordinal] = calls
        return (f"GPU {device.ordinal}: {active} in use of {reserved} reserved (peak {peak}), "
                f"largest free {text_of_bytes(device.largest_free)}, {new} driver calls since")


class _Handler(BaseHTTPRequestHandler):
    """Answers `GET /metrics`."""

    # Of a peer that sends or takes nothing.
    timeout = REQUEST_S

    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/metrics":
            self.send_error(404, "the figures are at /metrics")
            return
        try:
            body = _metrics.metrics().encode()
        except DrystoneError as error:
            self.send_error(503, str(error).splitlines()[0])
            return
        self.send_response(200)
        self.send_header("Content-Type", _metrics.CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""


class _Server(ThreadingTCPServer):
    """One thread per request, so that a slow reader keeps nobody waiting, up to so many: a request
    beyond is closed without an answer."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *arguments: object) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(*arguments)

    def process_request(self, request: object, address: object) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: object, address: object) -> None:
        try:
            super().process_request_thread(request, address)
        finally:
            self._free.release()

    def handle_error(self, request: object, address: object) -> None:
        """A peer that goes away is no news, and the program's standard error is not the place."""


def _serve(address: str, port: int) -> _Server:
    try:
        server = _Server((address, port), _Handler)
    except (OSError, OverflowError) as error:
        raise DrystoneError(f"cannot serve metrics at {address}:{port}: {error}") from error
    threading.Thread(
        target=server.serve_forever, name="drystone-metrics", daemon=True).start()
    return server
