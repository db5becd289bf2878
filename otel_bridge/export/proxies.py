"""
The proxy that the environment names for a URL: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in either case.

The rules are those of `urllib.request`, which also knows what macOS and Windows are set to.
"""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from otel_bridge.errors import ConfigError

_SPOKEN = ("http", "https")


def find_proxy(url: str) -> str | None:
    """The proxy's URL, credentials included; None: there is none. Raises ConfigError if it is of a kind that is not spoken."""
    target, proxies = urlsplit(url), getproxies()
    name = target.scheme if target.scheme in proxies else "all"
    proxy = proxies.get(name, "")
    if not proxy or proxy_bypass(target.netloc) or proxy_bypass(target.hostname or ""):  # `::1` as well as `[::1]`
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not _is_spoken(proxy):
        raise ConfigError(
            f"{name}_proxy in the environment, used for {target.netloc}, must be http://HOST:PORT or https://HOST:PORT; "
            "set it so, or name that host in no_proxy"
        )
    return proxy


def _is_spoken(proxy: str) -> bool:
    try:
        parts = urlsplit(proxy)
        return parts.scheme in _SPOKEN and bool(parts.hostname and parts.hostname.encode("idna")) and parts.port != 0
    except ValueError:
        return False
