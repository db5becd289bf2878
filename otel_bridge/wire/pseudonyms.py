"""
Attributes that are kept as a hash of their value. Part of admission; pure.

Invariants
* Without the salt nobody can tell a value from its hash, nor by trying all there are: the hash is keyed.
* Hashes of two tenants have nothing in common: each tenant's key is derived from the salt and the tenant's name, so that one
  secret is all there is to keep, and a tenant's key tells nothing of the secret or of another tenant's.
* Equal values of one attribute and one tenant have one hash, as long as the salt stays.
"""

from collections.abc import Callable
from hashlib import blake2b

from otel_bridge.model.stream import AttributeValue

LEAST_SALT_BYTES = 32

_HASH_BYTES = 8
"""A fleet of a million devices has two with one hash with a probability of 3 in 10^8."""
_OF_TENANT, _OF_VALUE = b"otb tenant", b"otb value"
"""BLAKE2 `person`: what a hash is for, so that none can be taken for one of the other kind."""


class Pseudonyms:
    """
    Hashes values.

    hidden   whether the attributes of a key are kept so (config/keys.py)
    salt     the secret, at least `LEAST_SALT_BYTES`
    """

    def __init__(self, hidden: Callable[[str], bool], salt: bytes) -> None:
        self._hidden = hidden
        self._secret = blake2b(salt).digest()

    def keep(self, allowed: Callable[[str], bool], tenant: str) -> Callable[[str, AttributeValue], AttributeValue | None]:
        """What is kept of an attribute of a tenant: its hash, or itself where it need not be hidden and is allowed, or None."""
        key_of_tenant = blake2b(tenant.encode(), key=self._secret, person=_OF_TENANT, digest_size=32).digest()

        def keep(key: str, value: AttributeValue) -> AttributeValue | None:
            if self._hidden(key):
                return _hash(key, value, key_of_tenant)
            return value if allowed(key) else None

        return keep


def _hash(key: str, value: AttributeValue, key_of_tenant: bytes) -> str:
    """16 hex digits. The name of the attribute has a part in it: that two of them have one value cannot be seen."""
    said = f"{key}\0{value}".encode()
    return blake2b(said, key=key_of_tenant, person=_OF_VALUE, digest_size=_HASH_BYTES).hexdigest()
