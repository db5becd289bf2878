"""
OTLP over HTTP, protobuf encoding.

Invariants
* 2xx: taken. 429, 502, 503, 504 and whatever keeps an answer from coming: a retry helps. All else: rejected.
  (opentelemetry-proto docs/specification.md, "Failures" of OTLP/HTTP.) A proxy's refusal is no answer of the back end.
  No error shows the URL of a proxy: it may hold a password.
* A redirect is an answer, not an order: following one would send spans and API keys where nobody configured. Nor is a cookie
  kept, or a `.netrc` read.
* A name is resolved for every new connection, by the system, and no connection is older than `max_age_s`. One that was idle for
  longer than servers commonly wait is not used again: a request that meets a closed door would look like an outage.
* At most `_LARGEST_ANSWER_BYTES` of an answer are read, and never decompressed.
* A payload is compressed off the event loop, and sent as one piece: `http_body`.
"""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus

import aiohttp
from yarl import URL

from otel_bridge import __version__
from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import BackEndUnavailable, ConfigError, ExportRejected
from otel_bridge.export.answers import read_retry_after_s, read_sent, read_status, shown
from otel_bridge.export.compression import COMPRESS
from otel_bridge.export.http_body import HttpBody
from otel_bridge.export.protocol import INVALID, TOO_LARGE, Sent
from otel_bridge.export.proxies import find_proxy
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

_IDLE_S = 4.0  # uvicorn hangs up after five seconds, most others after a minute or more


class OtlpHttp:
    """
    Posts to one OTLP/HTTP endpoint, through the proxy that the environment names for it.

    url          complete, path included
    tls          for https://; None: authorities of the system
    headers      of every request
    token        sent as a bearer token; None: none
    of_tenant    tells whose spans a request holds; None: nobody asks
    compression  "none", or a key of `COMPRESS`
    timeout_s    for one request, connecting included
    max_age_s    of a connection

    Raises ConfigError if `url` is none, or the proxy is of a kind that is not spoken.
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
            self._url = URL(url)
            (self._url.raw_host or "").encode("idna")  # else the first look-up would find out
        except ValueError as error:
            raise ConfigError(f"export.endpoint ({url}) is no URL: {error}") from error
        self._proxy = find_proxy(url)
        self._via = f" through the proxy {URL(self._proxy).host_port_subcomponent}" if self._proxy else ""
        self._headers = {**(headers or {}), **fixed}
        self._token = token
        self._of_tenant = of_tenant
        self._timeout_s = timeout_s
        self._under_way: set[HttpBody] = set()
        self._sessions = Renewal(self._open, aiohttp.ClientSession.close, tls=tls, max_age_s=max_age_s)

    async def send(self, payload: bytes, tenant: str = "") -> Sent:
        """See `Exporter.send`."""
        if self._compress is not None:
            payload = await asyncio.to_thread(self._compress, payload)
        headers = dict(self._headers)  # here and not of the session, which shows its own to the proxy, too
        if self._of_tenant is not None:
            headers |= self._of_tenant.of(tenant)
        if self._token is not None:
            headers["authorization"] = f"Bearer {await asyncio.to_thread(self._token)}"
        async with self._sessions.lend() as session:
            response, body = await self._post(session, payload, headers)
        if response.status // 100 == 2:  # noqa: PLR2004  # 2xx
            return read_sent(body) if _media_type(response) in {PROTOBUF, ""} else Sent()
        raise self._failure(response, body)

    async def close(self) -> None:
        """See `Exporter.close`."""
        for body in self._under_way:
            body.abort()
        await self._sessions.close()

    def _open(self, context: ssl.SSLContext | None) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=context if context is not None else True,
            limit=0,  # who sends bounds how much is under way
            keepalive_timeout=_IDLE_S,
            resolver=aiohttp.ThreadedResolver(),  # the default depends on what else is installed
            use_dns_cache=False,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),  # none: `_post` has one for all of it
            auto_decompress=False,
            proxy=self._proxy,
        )

    async def _post(
        self, session: aiohttp.ClientSession, payload: bytes, headers: Mapping[str, str]
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        body = HttpBody(payload, PROTOBUF)
        self._under_way.add(body)
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return response, await _read(response)
        except TimeoutError as error:
            raise BackEndUnavailable(f"back end {self._url} did not answer{self._via} within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise BackEndUnavailable(f"back end {self._url} cannot be reached{self._via}: {shown(_cause(error))}") from error
        finally:
            self._under_way.discard(body)
            body.let_go()

    def _failure(self, response: aiohttp.ClientResponse, body: bytes) -> BackEndUnavailable | ExportRejected:
        if response.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED and self._proxy:
            return BackEndUnavailable(f"back end {self._url} cannot be reached{self._via}: {_said_by_proxy(response.status)}")
        said = f"back end {self._url} answered HTTP {response.status}"
        if _media_type(response) == PROTOBUF and (status := read_status(body)) and status.message:
            said += f": {shown(status.message)}"
        if response.status in RETRYABLE:
            return BackEndUnavailable(said, retry_after_s=read_retry_after_s(response.headers.get("retry-after")))
        if response.status // 100 == 3 and (place := response.headers.get("location")):  # noqa: PLR2004  # 3xx
            said += f", which is not followed: set export.endpoint to where it leads, {shown(place)}"
        return ExportRejected(said, reason=_REASONS.get(response.status))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LARGEST_ANSWER_BYTES:
            return b""
    return bytes(body)


def _media_type(response: aiohttp.ClientResponse) -> str:
    """Without parameters; "": the back end does not say."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _cause(error: Exception) -> str:
    """In words. Those of aiohttp itself hold the address of an object, or the URL of a proxy and with it the password."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return _said_by_proxy(error.status)
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not HTTP: {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return str(error) or type(error).__name__


def _said_by_proxy(status: int) -> str:
    said = f"the proxy answered HTTP {status}"
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        said += "; set its name and password in the environment, http://NAME:PASSWORD@HOST:PORT"
    return said
