"""A small client of Sluice's own API: submit, wait, logs, cancel, list."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Iterator

__all__ = ["Sluice", "SluiceError"]

# How long one question waits for a job's end before it is asked again.
_WAIT_MS = 30_000

# How much longer than that an answer may take.
_ANSWER_S = 30


class SluiceError(Exception):
    """The server refused something, and why. `status` is HTTP's."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def _path(job: int | str) -> str:
    """The place of a job: `12` is one record, `12_3` a task of an array, `12_*` the whole array."""
    return f"/api/web/jobs/{urllib.parse.quote(str(job), safe='')}"


class Sluice:
    """A server, and the token by which it knows who asks."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        authority: str | None = None,
    ):
        self._url = (url or os.environ.get("SLUICE_URL") or "http://127.0.0.1:6820").rstrip("/")
        self._token = token or os.environ.get("SLUICE_TOKEN")
        if not self._token:
            raise ValueError("token: expected a token, or SLUICE_TOKEN in the environment")
        secure = self._url.startswith("https://")
        self._tls = ssl.create_default_context(cafile=authority) if secure else None

    def submit(self, script: str) -> int:
        """The number of the job that a batch script or a configuration of dstack becomes."""
        return self._json("POST", "/api/web/submit", {"script": script})["job"]

    def check(self, script: str) -> dict[str, Any]:
        """What is wrong with a script, or when and where it would start. Nothing is submitted."""
        return self._json("POST", "/api/web/check", {"script": script})

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs that wait and run."""
        return self._json("GET", "/api/web/jobs")["rows"]

    def job(self, job: int | str) -> dict[str, Any]:
        """A job with its allocation, its steps, and why it waits or has ended."""
        return self._json("GET", _path(job))

    def wait(self, job: int, timeout: float | None = None) -> dict[str, Any]:
        """The job once it has ended. Raises `TimeoutError` after so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_MS if end is None else int(1000 * (end - time.monotonic()))
            if left <= 0:
                raise TimeoutError(f"job {job} has not ended")
            question = {"await_end": {"job": int(job), "timeout_ms": min(left, _WAIT_MS)}}
            if self.call(question)["end"]["ended"]:
                return self.job(job)

    def logs(self, job: int) -> bytes:
        """The output of a job until now."""
        return b"".join(self._log({"job": int(job)}))

    def follow(self, job: int) -> Iterator[bytes]:
        """The output of a job as it comes, until the job ends."""
        return self._log({"job": int(job), "follow": "true"})

    def cancel(self, job: int | str) -> None:
        self._json("POST", f"{_path(job)}/cancel", {})

    def hold(self, job: int | str) -> None:
        self._json("POST", f"{_path(job)}/hold", {})

    def release(self, job: int | str) -> None:
        self._json("POST", f"{_path(job)}/release", {})

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes, with who holds each GPU."""
        return self._json("GET", "/api/web/nodes")["nodes"]

    def call(self, call: Any) -> Any:
        """Any call that commands make, and its answer."""
        return self._json("POST", "/api/web/call", {"call": call})

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        with self._open(method, path, body) as answer:
            return json.load(answer)

    def _log(self, query: dict[str, Any]) -> Iterator[bytes]:
        with self._open("GET", "/api/web/logs?" + urllib.parse.urlencode(query)) as answer:
            while part := answer.read1(65536):
                yield part

    def _open(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        timeout = _WAIT_MS / 1000 + _ANSWER_S
        try:
            return urllib.request.urlopen(request, timeout=timeout, context=self._tls)
        except urllib.error.HTTPError as error:
            raise SluiceError(error.code, _refusal(error.read())) from None


def _refusal(body: bytes) -> str:
    """The line of a refusal: JSON with `error`, or text as it is."""
    text = body.decode(errors="replace").strip()
    try:
        return json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return text
