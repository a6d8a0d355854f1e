"""Telling the figures again and again: the log, a file and an endpoint for Prometheus.

Invariant: whatever fails once the monitor runs is a line in the log, and the program goes on; what
is wrong with the arguments is an error before anything starts.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from types import TracebackType
from typing import Any

from . import _figures, _metrics
from ._errors import DrystoneError
from ._figures import Device, text_of_bytes
from ._write import write

# How long the end of a monitor may take.
STOP_S = 5.0
# How long a peer may take, in all, to send its request and to take the answer; and how many are
# served at one time.
REQUEST_S = 5.0
REQUESTS_MAX = 8


class Monitor:
    """A monitor that runs until `stop`. See `drystone.monitor`."""

    def __init__(
        self, interval_s: float, logger: logging.Logger | str | None,
        file: str | os.PathLike[str] | None, port: int | None, address: str,
    ) -> None:
        if not 0 < interval_s <= threading.TIMEOUT_MAX:
            raise DrystoneError(f"an interval of {interval_s} s: it must be above 0")
        _figures.route()
        self._interval_s = interval_s
        named = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._logger = named or logging.getLogger("drystone")
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
                # Else children that were forked meanwhile would keep the port.
                with contextlib.suppress(OSError):
                    server.socket.shutdown(socket.SHUT_RDWR)
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
            except Exception as error:  # Else the thread would end, and nobody would know.
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
                f"largest free {text_of_bytes(device.largest_free)}, {new} new driver calls")


class _Handler(BaseHTTPRequestHandler):
    """Answers `GET /metrics`."""

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
    beyond is closed without an answer, and one that takes too long before it has one."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        # Each with the moment at which its peer has had its time.
        self._served: dict[socket.socket, float] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, address: Any) -> None:
        with self._lock:
            is_free = len(self._served) < REQUESTS_MAX
            if is_free:
                self._served[request] = time.monotonic() + REQUEST_S
        if not is_free:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, address)
        except RuntimeError:
            # There is no thread left.
            self._end(request)
            raise

    def process_request_thread(self, request: Any, address: Any) -> None:
        try:
            super().process_request_thread(request, address)
        finally:
            self._end(request)

    def _end(self, request: socket.socket) -> None:
        with self._lock:
            self._served.pop(request, None)

    def service_actions(self) -> None:
        """Several times a second: a peer that sends a byte now and then is never silent."""
        now_s = time.monotonic()
        with self._lock:
            for request, end_s in self._served.items():
                if now_s > end_s:
                    # Its thread finds it closed. It may have done so itself.
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, address: Any) -> None:
        """A peer that goes away is no news, and the program's standard error is not the place."""


def _serve(address: str, port: int) -> _Server:
    try:
        server = _Server((address, port), _Handler)
    except (OSError, OverflowError) as error:
        raise DrystoneError(
            f"cannot serve metrics at {address}:{port}: {error}; each process needs a port of its "
            "own, 0 for any") from error
    threading.Thread(
        target=server.serve_forever, name="drystone-metrics", daemon=True).start()
    return server
