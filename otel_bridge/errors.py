"""
What can go wrong, drawn.

* BridgeError
  + ConfigError           the settings cannot be obeyed; raised before anything starts
  + Rejected              do not retry: the same bytes will fail again
    - MalformedRequest    a request that cannot be understood
    - MalformedETDump     a file that is not a whole, honest ETDump
    - MalformedMapping    a mapping, or the source of one, that cannot be used
    - TooLarge            a request over the size limit
    - Unauthenticated     a request without a credential, or with one that is not good
    - PermissionDenied    a good credential that lacks the scope
    - MappingConflict     the build already has a mapping that resolves differently
    - MappingNotFound     no mapping goes by that reference
    - QuotaMet            the tenant has as many mappings as it may
    - ExportRejected      the back end refused spans for good
    - BridgeRefused       a bridge refused a call of a client for good
  + Unavailable           a retry helps, after `retry_after_s`
    - SpoolFull           no room for more events now
    - OverQuota           the tenant sends more than it may
    - Draining            the bridge is stopping
    - Overloaded          as many requests as the bridge bears are in it
    - BodyStalled         the body of a request stopped coming, or took too long
    - BackEndUnavailable  the back end cannot be reached, or asks for patience
    - BridgeUnavailable   a client cannot reach its bridge, or is asked for patience

Every error has a `reason`: stable, of low cardinality, and the label of the metric that counts it. A message says what,
where (by position), what was found, and the way out; bytes from a device are never repeated raw.
A miss during resolution is not an error: it is a `Resolution` with a status.
"""


class BridgeError(Exception):
    """Anything the bridge says about itself or its input."""

    reason = "internal"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class ConfigError(BridgeError):
    """The settings cannot be obeyed."""

    reason = "config"


class Rejected(BridgeError):
    """The same bytes will fail again: do not retry."""

    reason = "rejected"


class MalformedRequest(Rejected):
    """A request cannot be understood."""

    reason = "malformed_request"


class MalformedETDump(Rejected):
    """A file is not a whole, honest ETDump."""

    reason = "malformed_etdump"


class MalformedMapping(Rejected):
    """A mapping, or the source of one, cannot be used."""

    reason = "malformed_mapping"


class TooLarge(Rejected):
    """A request is over the size limit."""

    reason = "too_large"


class Unauthenticated(Rejected):
    """
    A request has no credential, or one that is not good.

    `is_invalid`: there is one. Nothing else is told of it: not whether it exists, existed or has ended.
    """

    reason = "unauthenticated"

    def __init__(self, message: str, *, is_invalid: bool = False) -> None:
        super().__init__(message)
        self.is_invalid = is_invalid


class PermissionDenied(Rejected):
    """The credential of a request is good, but lacks the scope that the request needs: `scope`."""

    reason = "permission_denied"

    def __init__(self, message: str, *, scope: str = "") -> None:
        super().__init__(message)
        self.scope = scope


class MappingConflict(Rejected):
    """The build already has a mapping that resolves differently."""

    reason = "mapping_conflict"


class MappingNotFound(Rejected):
    """No mapping goes by that reference."""

    reason = "mapping_not_found"


class QuotaMet(Rejected):
    """The tenant has as many mappings as it may."""

    reason = "mapping_quota"


class ExportRejected(Rejected):
    """The back end refused spans for good."""

    reason = "export_rejected"


class BridgeRefused(Rejected):
    """
    A bridge refused a call of a client for good.

    `reason` is the bridge's own where it gives one; `code` is the name of the gRPC status.
    """

    reason = "bridge_refused"

    def __init__(self, message: str, *, code: str = "", reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.code = code


class Unavailable(BridgeError):
    """A retry helps, after `retry_after_s` seconds where it is given."""

    reason = "unavailable"

    def __init__(self, message: str, *, retry_after_s: float | None = None, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_s = retry_after_s


class SpoolFull(Unavailable):
    """No room for more events now."""

    reason = "spool_full"


class OverQuota(Unavailable):
    """The tenant sends more than it may: `quota`, "events" or "bytes"."""

    reason = "over_quota"

    def __init__(self, message: str, *, quota: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.quota = quota


class Draining(Unavailable):
    """The bridge is stopping."""

    reason = "draining"


class Overloaded(Unavailable):
    """As many requests as the bridge bears are in it, or it has no memory for more."""

    reason = "overloaded"


class BodyStalled(Unavailable):
    """The body of a request stopped coming, or took too long."""

    reason = "body_stalled"


class BackEndUnavailable(Unavailable):
    """The back end cannot be reached, or asks for patience."""

    reason = "back_end_unavailable"


class BridgeUnavailable(Unavailable):
    """A client cannot reach its bridge, or is asked for patience; `code` is the name of the gRPC status."""

    reason = "bridge_unavailable"

    def __init__(self, message: str, *, code: str = "", retry_after_s: float | None = None, reason: str | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s, reason=reason)
        self.code = code
