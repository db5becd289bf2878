"""
OTLP over HTTP, protobuf encoding.

Invariants
* 2xx: taken. 429, 502, 503, 504 and whatever keeps an answer from coming: a retry helps. All else: rejected.
  (opentelemetry-proto docs/specification.md, "Failures" of OTLP/HTTP.)
* A redirect is an answer, not an order: following one would send spans and API keys where nobody configured.
* A name is resolved for every new connection, and no connection is older than `max_age_s`.
* At most `_LARGEST_ANSWER_BYTES` of an answer are read, and never decompressed.
"""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus

import httpx

from otel_bridge import __version__
from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import BackEndUnavailable, ConfigError, ExportRejected
from otel_bridge.export.answers import read_retry_after_s, read_sent, read_status, shown
from otel_bridge.export.compression import COMPRESS
from otel_bridge.export.protocol import INVALID, TOO_LARGE, Sent
from otel_bridge.export.renewal import Renewal
from otel_bridge.export.tenant_header import TenantHeader
from otel_bridge.export.token import Token

PROTOBUF = "application/x-protobuf"
RETRYABLE = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_REASONS: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: INVALID,
    HTTPStatus.UNPROCESSABLE_ENTITY: INVALID,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TOO_LARGE,
}
"""Statuses that say what is wrong with the payload."""

_LARGEST_ANSWER_BYTES = 4 << 20


class OtlpHttp:
    """
    Posts to one OTLP/HTTP endpoint.

    url          complete, path included
    tls          for https://; None: authorities of the system
    headers      of every request
    token        sent as a bearer token; None: none
    of_tenant    tells whose spans a request holds; None: nobody asks
    compression  "none", or a key of `COMPRESS`
    timeout_s    for one request, connecting included
    max_age_s    of a connection

    Raises ConfigError if `url` is none.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: Reloaded[ssl.SSLContext] | None = None,
        headers: Mapping[str, str] | None = None,
        token: Token | None = None,
        of_tenant: TenantHeader | None = None,
        compression: str = "none",
        timeout_s: float = 10.0,
        max_age_s: float = 300.0,
    ) -> None:
        fixed = {"content-type": PROTOBUF, "accept-encoding": "identity", "user-agent": f"otel-bridge/{__version__}"}
        self._compress = COMPRESS.get(compression)
        if self._compress is not None:
            fixed["content-encoding"] = compression
        try:
            self._url = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ConfigError(f"export.endpoint ({url}) is no URL: {error}") from error
        self._headers = {**(headers or {}), **fixed}
        self._token = token
        self._of_tenant = of_tenant
        self._timeout_s = timeout_s
        self._clients = Renewal(self._open, httpx.AsyncClient.aclose, tls=tls, max_age_s=max_age_s)

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        if self._compress is not None:
            payload = await asyncio.to_thread(self._compress, payload)
        headers = dict(self._of_tenant.of(tenant)) if self._of_tenant is not None else {}
        if self._token is not None:
            headers["authorization"] = f"Bearer {await asyncio.to_thread(self._token)}"
        async with self._clients.lend() as client:
            response, body = await self._post(client, payload, headers)
        if response.is_success:
            return read_sent(body) if _media_type(response) in {PROTOBUF, ""} else Sent()
        raise self._failure(response, body)

    async def close(self) -> None:
        """See `Exporter.close`."""
        await self._clients.close()

    def _open(self, context: ssl.SSLContext | None) -> httpx.AsyncClient:
        verify = context if context is not None else self._url.scheme == "https"
        return httpx.AsyncClient(verify=verify, headers=self._headers, timeout=self._timeout_s)

    async def _post(
        self, client: httpx.AsyncClient, payload: bytes, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        try:
            # httpx bounds each step; a back end that drips its answer would never meet such a bound.
            async with (
                asyncio.timeout(self._timeout_s),
                client.stream("POST", self._url, content=payload, headers=headers) as response,
            ):
                return response, await _read(response)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise BackEndUnavailable(f"back end {self._url} did not answer within {self._timeout_s:g} s") from error
        except (httpx.TransportError, OSError) as error:  # OSError: an alert of TLS 1.3 comes late, and httpx lets it pass
            said = shown(str(error) or type(error).__name__)
            raise BackEndUnavailable(f"back end {self._url} cannot be reached: {said}") from error

    def _failure(self, response: httpx.Response, body: bytes) -> BackEndUnavailable | ExportRejected:
        said = f"back end {self._url} answered HTTP {response.status_code}"
        if _media_type(response) == PROTOBUF and (status := read_status(body)) and status.message:
            said += f": {shown(status.message)}"
        if response.status_code in RETRYABLE:
            return BackEndUnavailable(said, retry_after_s=read_retry_after_s(response.headers.get("retry-after")))
        if response.has_redirect_location:
            said += f", which is not followed: set export.endpoint to where it leads, {shown(response.headers['location'])}"
        return ExportRejected(said, reason=_REASONS.get(response.status_code))


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > _LARGEST_ANSWER_BYTES:
            return b""
    return bytes(body)


def _media_type(response: httpx.Response) -> str:
    """Without parameters; "": the back end does not say."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()
