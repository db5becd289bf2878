"""The section `jwt`: tokens that an identity provider signs, beside those that the bridge's operator makes."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator

from otel_bridge.config.auth import AuthConfig
from otel_bridge.config.setting import Number, Section, setting
from otel_bridge.config.values import ReadableFile, Several, check_endpoint

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that are checked with a public key. Not `none`, and none of a shared secret (HS*): who can check could sign."""


def _https(url: str) -> str:
    if url:
        check_endpoint(url, scheme_needed=True)
        if urlsplit(url).scheme != "https":
            raise ValueError("must begin with https://: who could change the keys on their way could sign tokens")
    return url


class JwtConfig(Section):
    """
    JSON Web Tokens of an identity provider, which are taken like tokens of `otel-bridge token create`.

    They are taken where jwks_file or jwks_url is set; then issuer and audience must be, too.
    """

    jwks_file: ReadableFile = setting(
        None,
        "File of the provider's public keys (JSON Web Key Set); read again when it changes.",
        rule="a file that can be read; not together with jwks_url; needs auth.enabled",
    )
    jwks_url: Annotated[str, AfterValidator(_https)] = setting(
        "",
        "Where the provider publishes them. What was fetched is used until other keys can be had.",
        rule="https://...; not together with jwks_file; needs auth.enabled",
    )
    ca: ReadableFile = setting(
        None, "PEM file of the authorities that vouch for jwks_url; else those of the system.", rule="a file that can be read"
    )
    issuer: str = setting("", "Who must have issued a token: its claim `iss`, to the letter.", rule="given with keys")
    audience: Annotated[tuple[str, ...], Several] = setting(
        (), "For whom a token must be meant: its claim `aud` holds one of these.", rule="at least one, with keys"
    )
    algorithms: Annotated[tuple[Algorithm, ...], Several] = setting(
        ("RS256", "ES256"),
        "Signatures that are taken.",
        rule="of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA",
    )
    leeway_s: Number = setting(
        30.0, "How far the clocks of provider and bridge may be apart.", unit="seconds", least=0, most=600
    )
    scope_claim: str = setting(
        "scope", "Claim that holds scopes, as a list or with spaces between them; words that are no scopes are passed over."
    )
    tenant_claim: str = setting(
        "", "Claim that holds the tenant, without which a token is then not taken; empty: all are of the default tenant."
    )
    timeout_s: Number = setting(5.0, "Longest wait for jwks_url.", unit="seconds", above=0)
    max_age_s: Number = setting(3600.0, "Keys of jwks_url are fetched anew after this.", unit="seconds", above=0)
    unknown_key_wait_s: Number = setting(
        30.0, "For a key that is not known jwks_url is asked no sooner than this after the last time.", unit="seconds", above=0
    )

    @property
    def enabled(self) -> bool:
        """Whether such tokens are taken."""
        return bool(self.jwks_file or self.jwks_url)


def faults_of_jwt(jwt: JwtConfig, auth: AuthConfig) -> list[str]:
    """What contradicts itself, in the user's words."""
    if not jwt.enabled:
        return [
            f"jwt.{name} is set, but neither jwt.jwks_file nor jwt.jwks_url is: name the keys, or drop jwt.{name}"
            for name in ("issuer", "audience", "tenant_claim", "ca")
            if getattr(jwt, name)
        ]
    faults = []
    if jwt.jwks_file and jwt.jwks_url:
        faults.append("jwt.jwks_file and jwt.jwks_url are both set: give one of them")
    if jwt.ca and not jwt.jwks_url:
        faults.append("jwt.ca is set, but jwt.jwks_url is not: set it, or drop jwt.ca")
    faults += [
        f"jwt.{name} must be given: without it tokens for other services of the provider would open this one"
        for name in ("issuer", "audience")
        if not getattr(jwt, name)
    ]
    if not jwt.algorithms:
        faults.append("jwt.algorithms must have at least one")
    if not auth.enabled:
        faults.append("jwt has keys, but auth.enabled is false: set it, or drop them")
    return faults
