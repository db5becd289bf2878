"""Attributes that are kept as a hash: of both kinds of request, of the resource and of inferences."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.requests import NOON, a_request, admitted, admitted_dump
from support.scenes import runtime

from otel_bridge.config.keys import allow
from otel_bridge.model.events import EventBatch
from otel_bridge.model.stream import AttributeValue
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Admitted, Receipt, Rules
from otel_bridge.wire.pseudonyms import Pseudonyms

SALT = bytes(range(32))
VALUE = b"serial-4711"
VALUES = (
    st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
)
TENANTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def rules_with(*hidden: str, salt: bytes = SALT) -> Rules:
    """Rules that keep `service.name`, and hash these."""
    return Rules(allow(["service.name"]), allow(["thread.name"]), 0, pseudonyms=Pseudonyms(allow(hidden), salt))


def by_columns(rules: Rules, receipt: Receipt) -> Admitted:
    """A request of columns with one value under several keys."""
    request = a_request(runtime("Method::execute", 0, 1))
    for key in (b"service.name", b"device.id", b"host.id"):
        request.stream.resource.add(key=key).value.text = VALUE
    request.blocks[0].attributes.add(key=b"device.id").value.text = VALUE
    request.blocks[0].attributes.add(key=b"thread.name").value.text = VALUE
    return admitted(request, rules=rules, receipt=receipt)


def by_file(rules: Rules, receipt: Receipt) -> Admitted:
    """The same with an ETDump."""
    event = ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=1, end=9)
    request = pb.UploadETDumpRequest(etdump=write_etdump([RunData("Execute", [event])]))
    for key in (b"service.name", b"device.id", b"host.id"):
        request.stream.resource.add(key=key).value.text = VALUE
    request.attributes.add(key=b"device.id").value.text = VALUE
    request.attributes.add(key=b"thread.name").value.text = VALUE
    return admitted_dump(request, rules=rules, receipt=receipt)


@pytest.mark.parametrize("admit", [by_columns, by_file])
def test_a_hidden_value_is_its_hash_everywhere(admit: Callable[[Rules, Receipt], Admitted]) -> None:
    """A hashed key is kept without being on a list, of resource and inference alike; what is on neither list is left out."""
    batch = admit(rules_with("device.*"), NOON).batch
    resource, inference = dict(batch.streams[0].resource), dict(batch.blocks[-1].attributes)
    assert resource.keys() == {"service.name", "device.id"}
    assert inference.keys() == {"thread.name", "device.id"}
    assert resource["device.id"] == inference["device.id"]
    assert len(str(resource["device.id"])) == 16
    assert int(str(resource["device.id"]), 16) >= 0


def hash_of(key: str, value: AttributeValue, tenant: str = "", salt: bytes = SALT) -> AttributeValue | None:
    """What is kept of a hidden attribute."""
    return Pseudonyms(allow(["*"]), salt).keep(lambda _key: False, tenant)(key, value)


@given(VALUES, VALUES, TENANTS)
def test_equal_values_and_only_those_stay_equal(one: AttributeValue, other: AttributeValue, tenant: str) -> None:
    """Within a tenant and a key two values have one hash where they read the same, and else two."""
    assert (hash_of("k", one, tenant) == hash_of("k", other, tenant)) == (str(one) == str(other))


@given(VALUES, TENANTS, TENANTS)
def test_tenants_cannot_be_linked(value: AttributeValue, one: str, other: str) -> None:
    """One value has different hashes for different tenants, keys and salts."""
    assert (hash_of("k", value, one) == hash_of("k", value, other)) == (one == other)
    assert hash_of("k", value, one) != hash_of("l", value, one)
    assert hash_of("k", value, one) != hash_of("k", value, one, SALT + b"x")


def test_a_key_and_a_value_are_told_apart() -> None:
    """Where the key ends has a part in the hash."""
    assert hash_of("ab", "c") != hash_of("a", "bc")


def test_the_tenant_of_the_receipt_counts() -> None:
    """Admission hashes for the tenant whose credential came with the request."""

    def resource(batch: EventBatch) -> AttributeValue:
        return dict(batch.streams[0].resource)["device.id"]

    rules = rules_with("device.id")
    first, again, other = (by_columns(rules, replace(NOON, tenant=tenant)).batch for tenant in ("a", "a", "b"))
    assert resource(first) == resource(again) != resource(other)


def test_the_hash_is_an_interface() -> None:
    """Dashboards and other bridges know devices by it: it never changes."""
    assert hash_of("device.id", "serial-4711", "acme") == "cbf6518a8981fffd"
