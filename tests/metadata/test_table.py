"""Decoders of delegate authors: chosen per backend, run apart, never trusted."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from support.pages import ROOT

from otel_bridge.backends.table import read
from otel_bridge.errors import ConfigError
from otel_bridge.metadata.coreml import decode_coreml
from otel_bridge.metadata.neutron import decode_neutron
from otel_bridge.metadata.table import FIXED_TYPES, Decoders
from otel_bridge.metadata.vgf import SCHEMA, decode_vgf

HERE = "support.parsers"


class Failures(list[tuple[str, str]]):
    """What `watch` was told."""

    def __call__(self, decoder: str, reason: str) -> None:
        """Note one failure."""
        self.append((decoder, reason))


def test_a_parser_gets_a_list_of_one_and_names_the_attributes() -> None:
    """The signature is the one that authors write for ExecuTorch's Inspector."""
    with closing(Decoders([f"{HERE}:parse_delegate_metadata"])) as decoders:
        content = decoders.decode("AnyBackend", b"\x07\x08")
    assert content.pairs == (("first", 7.0), ("second_byte", 8.0), ("given", 1.0))


def test_the_decoder_named_for_a_backend_wins_over_the_one_for_all() -> None:
    """Other backends in the same file get the other one."""
    with closing(Decoders(["raw", f"Toy={HERE}:as_list", "Json=json"])) as decoders:
        assert decoders.decode("Toy", b"\xab").values == ("ab",)
        assert decoders.decode("Json", b'{"a":1}').pairs == (("a", 1.0),)
        assert decoders.decode(None, b"{}").raw == "7b7d"


def test_a_package_offers_a_decoder_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed is enough; configuration for the same backend, or for all, wins."""
    info = tmp_path / "vendor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[otel_bridge.metadata_decoders]\nVendor = {HERE}:as_list\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(Decoders()) as decoders:
        assert decoders.decode("Vendor", b"{}").values == ("7b7d",)
        assert decoders.decode("Other", b"text").values == ("text",)
    with closing(Decoders(["Vendor=raw"])) as decoders:
        assert decoders.decode("Vendor", b"{}").raw == "7b7d"
    with closing(Decoders(["utf8"])) as decoders:
        assert decoders.decode("Vendor", b"{}").values == ("{}",)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raising", "raised RuntimeError"),
        ("nonsense", "gave int"),
    ],
)
def test_a_parser_that_fails_costs_its_attribute_only(function: str, said: str) -> None:
    """The raw bytes stay, with the reason, and the next byte string is tried again."""
    failures = Failures()
    with closing(Decoders([f"{HERE}:{function}"], watch=failures)) as decoders:
        for data in (b"one", b"two"):
            content = decoders.decode("Toy", data)
            assert data.hex() == content.raw
            assert said in content.error
    assert [(f"{HERE}:{function}", "undecoded")] * 2 == failures


def test_a_parser_that_hangs_is_ended_and_stays_off() -> None:
    """One time limit is lost, not one an event; what was read before stays read."""
    failures = Failures()
    with closing(Decoders([f"{HERE}:hanging_on_z"], time_limit_s=2, watch=failures)) as decoders:
        assert decoders.decode("Toy", b"a").values == ("read",)
        assert "no answer within 2 s" in decoders.decode("Toy", b"z").error
        assert "switched off" in decoders.decode("Toy", b"b").error
        assert decoders.decode("Toy", b"a").values == ("read",)
    assert [(f"{HERE}:hanging_on_z", "switched_off")] * 2 == failures


def test_a_parser_that_kills_its_process_does_not_kill_the_bridge() -> None:
    """A fault in native code ends the worker only."""
    with closing(Decoders([f"{HERE}:dying"], time_limit_s=20)) as decoders:
        content = decoders.decode("Toy", b"x")
    assert (content.raw, "its process ended" in content.error) == ("78", True)


def test_too_many_keys_are_left_out_and_told() -> None:
    """32 attributes an event are kept."""
    with closing(Decoders([f"{HERE}:too_much"])) as decoders:
        content = decoders.decode("Toy", b"x")
    assert (len(content.pairs), content.error) == (32, "968 keys more than 32 were left out")


def test_each_byte_string_is_decoded_once() -> None:
    """What is known is not asked again, so a failure is counted once."""
    failures = Failures()
    with closing(Decoders([f"{HERE}:raising"], watch=failures)) as decoders:
        assert decoders.decode("Toy", b"same") is decoders.decode("Toy", b"same")
    assert len(failures) == 1


def test_metadata_over_the_limit_is_not_decoded() -> None:
    """Its beginning stays, in hex, with its true size."""
    with closing(Decoders(max_bytes=10)) as decoders:
        content = decoders.decode("Toy", b"0123456789a")
    assert (content.raw[:4], "11 bytes, over the limit of 10" in content.error) == ("3031", True)


def test_a_key_never_changes_its_type() -> None:
    """A back end indexes a key by one type: text stays text, and text under a number's key is told instead."""
    with closing(Decoders()) as decoders:
        assert decoders.decode("Toy", b'{"n":1,"t":"x"}').pairs == (("n", 1.0), ("t", "x"))
        content = decoders.decode("Toy", b'{"n":"one","t":2.5}')
        assert content.pairs == (("t", "2.5"),)
        assert content.error == "n is text here and a number elsewhere"
        assert decoders.decode("Other", b'{"n":"one","t":1}').pairs == (("t", "1"),)


@pytest.mark.parametrize(
    ("foreign", "delegate", "data", "own"),
    [
        (b'{"function":1}', "NeutronBackend", b"\x2a", (("function", "kernel"), ("kernel_code", 42))),
        (b'{"kernel_code":"conv"}', "NeutronBackend", b"\x2a", (("function", "kernel"), ("kernel_code", 42))),
        (b'{"estimated_cost":"high"}', "CoreMLBackend", b'{"estimatedCost":1}', (("estimated_cost", 1.0),)),
    ],
)  # fmt: skip
def test_nothing_foreign_takes_a_key_from_the_bridges_own_decoders(
    foreign: bytes, delegate: str, data: bytes, own: tuple[tuple[str, object], ...]
) -> None:
    """Whatever any delegate sent before, under the same key and with another type, they say what they always say."""
    with closing(Decoders()) as decoders:
        decoders.decode("Foreign", foreign)
        content = decoders.decode(delegate, data)
    assert (content.pairs, content.error) == (own, "")


def test_a_key_of_vulkans_identifiers_has_its_type_everywhere() -> None:
    """Those never pass a decoder, so a decoder's value becomes of their type, or is left out and told."""
    with closing(Decoders()) as decoders:
        assert decoders.decode("Toy", b'{"operator_id":7,"operator":3}').pairs == (("operator_id", 7), ("operator", "3"))
        assert type(decoders.decode("Toy", b'{"operator_id":7,"operator":3}').pairs[0][1]) is int
        content = decoders.decode("Toy", b'{"operator_id":7.5}')
    assert (content.pairs, content.error) == ((), "operator_id is a number here and an integer elsewhere")


def test_the_fixed_types_are_those_that_are_given() -> None:
    """Each key of the bridge's own decoders and of Vulkan's identifiers, no other, and the page says the same."""
    coreml = {"preferredComputeUnit": "NE", "supportedComputeUnits": ["NE"], "outputNames": ["x"], "operatorName": "conv"}
    vgf = {"schema": SCHEMA, "schema_version": 1, "available": False, "reason": "off", "segments": []}
    shader = {"operator": {"name": "aten.add"}, "kernel_name": "add", "operator_id": 1, "dispatch_id": 2}
    given = [
        *decode_coreml(json.dumps(coreml | {"estimatedCost": 0.5}).encode()).pairs,
        *decode_neutron(b"\x2a").pairs,
        *decode_vgf(json.dumps(vgf).encode()).pairs,
        *read("VulkanBackend", json.dumps(shader)).details,
    ]
    assert {key: type(value) for key, value in given} == FIXED_TYPES
    words = {str: "text", int: "integer", float: "double", bool: "truth value"}
    page = (ROOT / "docs" / "metadata.md").read_text()
    for fixed, word in words.items():
        (keys,) = re.findall(rf"^\| {word} \| (.*) \|$", page, re.MULTILINE)
        assert sorted(keys.replace("`", "").split(", ")) == sorted(key for key, its in FIXED_TYPES.items() if its is fixed)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nothing", "must look like"),
        (f"Toy={HERE}:missing", "has no function 'missing'"),
        ("no.such.module:f", "cannot be imported"),
        (f"{HERE}:NOT_A_FUNCTION", "is not callable"),
        (f"Toy={HERE}:", "must look like module:function"),
    ],
)
def test_a_decoder_that_cannot_be_had_is_told_at_start(spec: str, said: str) -> None:
    """Nothing starts with a setting that cannot be obeyed."""
    with pytest.raises(ConfigError, match=said):
        Decoders([spec])
