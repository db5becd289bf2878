"""
An identity provider: it signs tokens, and publishes its public keys over TLS on loopback.

    provider = Provider()
    provider.sign(scope="admin")                      # a good token
    with provider.publish(certificates) as place:     # place.url; place.answers, place.asked
        ...
"""

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from support.certificates import LOOPBACK, Certificates

from otel_bridge.auth.keys import FileKeys
from otel_bridge.auth.web_token import WebTokens
from otel_bridge.config.jwt import JwtConfig
from otel_bridge.model.identity import Scope

ISSUER, AUDIENCE = "https://login.example.com/", "otel-bridge"


@dataclass
class Place:
    """
    Where keys are published.

    answers   (status, body) for each of the next requests; then the provider's keys
    asked     how many requests there were
    drip      how an answer begins that then comes byte by byte, and never ends; empty: answers come whole
    """

    url: str
    answers: deque[tuple[int, bytes]] = field(default_factory=deque)
    asked: int = 0
    drip: bytes = b""


class Provider:
    """A provider with an EC key "one"; others come with `rotate`."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"one": ec.generate_private_key(ec.SECP256R1())}

    def rotate(self, key_id: str, *, rsa_bits: int = 0) -> None:
        """Add a key, of RSA where its size is given."""
        self.keys[key_id] = rsa.generate_private_key(65_537, rsa_bits) if rsa_bits else ec.generate_private_key(ec.SECP256R1())

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Those of a token that is good for five minutes; None takes one away."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "somebody", "iat": now, "nbf": now, "exp": now + 300} | changed
        return {name: value for name, value in claims.items() if value is not None}

    def sign(self, key_id: str = "one", *, algorithm: str = "", header: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token with these claims."""
        key = self.keys[key_id]
        default = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        head = {"kid": key_id} | (header or {})
        return jwt.encode(self.claims(**changed), key, algorithm or default, {k: v for k, v in head.items() if v is not None})

    def key_set(self, *more: Any) -> bytes:
        """The public keys."""
        listed = []
        for key_id, key in self.keys.items():
            kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            listed.append({"kid": key_id, "use": "sig", **kind.to_jwk(key.public_key(), as_dict=True)})
        return json.dumps({"keys": [*listed, *more]}).encode()

    def bad_tokens(self) -> dict[str, str]:
        """Tokens with every scope that let nobody in, by the reason that is counted."""
        everything, ended = {"scope": " ".join(Scope)}, int(time.time()) - 3600
        head, _, signature = self.sign().split(".")
        claims = self.sign(**everything).split(".")[1]
        return {
            "expired": self.sign(exp=ended, **everything),
            "not_yet_valid": self.sign(nbf=ended + 7200, **everything),
            "issuer": self.sign(iss="https://login.example.org/", **everything),
            "audience": self.sign(aud="another service", **everything),
            "claims": self.sign(exp=None, **everything),
            "signature": f"{head}.{claims}.{signature}",
            "unknown_key": self.sign(header={"kid": "none of theirs"}, **everything),
            "algorithm": jwt.encode(self.claims(**everything), None, "none", {"kid": "one"}),
            "malformed": f"{head}.{claims}",
        }

    def tokens_taken(self, folder: Path) -> WebTokens:
        """What takes this provider's tokens, by its keys in a file."""
        file = folder / "keys.json"
        file.write_bytes(self.key_set())
        config = JwtConfig(jwks_file=file, issuer=ISSUER, audience=[AUDIENCE], tenant_claim="tenant")
        return WebTokens(config, FileKeys(file))

    @contextmanager
    def publish(self, certificates: Certificates) -> Iterator[Place]:
        """Publish the keys as they are at each request."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place.asked += 1
                if place.drip:
                    self._drip(place.drip)
                    return
                status, body = place.answers.popleft() if place.answers else (200, provider.key_set())
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _drip(self, start: bytes) -> None:
                with suppress(OSError):  # until nobody reads any more
                    self.wfile.write(start)
                    while True:
                        self.wfile.write(b"x")
                        time.sleep(0.01)

            def log_message(self, *_: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
        with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            place = Place(f"https://{LOOPBACK}:{server.server_address[1]}/keys.json")
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield place
            finally:
                server.shutdown()
                thread.join()
