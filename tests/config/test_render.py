"""The configuration as a file."""

import re
import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.config.bridge import SECTIONS, BridgeConfig
from otel_bridge.config.load import load
from otel_bridge.config.render import render
from otel_bridge.config.setting import facts

EXAMPLE = Path(__file__).parents[2] / "deploy" / "bridge.example.toml"


def test_the_example_is_what_config_show_prints() -> None:
    """deploy/bridge.example.toml is the rendered defaults; after a change of settings, write it anew with `render`."""
    assert EXAMPLE.read_text() == render(BridgeConfig())


def test_the_example_loads() -> None:
    """The example is the defaults, as it stands and with every setting uncommented."""
    assert load(EXAMPLE) == BridgeConfig()
    settings = re.sub(r"^# (\w+ = )", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    tables = tomllib.loads(settings)
    assert {name: set(table) for name, table in tables.items()} == {
        name: set(kind.model_fields) for name, kind in SECTIONS.items()
    }
    assert BridgeConfig.model_validate(tables) == BridgeConfig()


def test_every_setting_is_told() -> None:
    """Every setting has a sentence; every number has a unit and a rule."""
    for section, kind in SECTIONS.items():
        for name, field in kind.model_fields.items():
            told = facts(field)
            assert told.sentence.endswith("."), f"{section}.{name}"
            if field.annotation in (int, float):
                assert told.unit, f"{section}.{name}"
                assert told.rule, f"{section}.{name}"


def test_secrets_are_masked() -> None:
    """Header values appear in no rendering and no repr, unless asked for."""
    config = load(None, {"export.headers": {"x-key": "s3cret"}})
    assert "s3cret" not in render(config) + repr(config)
    assert 'headers = { "x-key" = "****" }' in render(config)
    assert 'headers = { "x-key" = "s3cret" }' in render(config, masked=False)


def test_set_values_stand_uncommented(tmp_path: Path) -> None:
    """What was set stands as a setting with its default beside it; what was not stays a comment."""
    text = render(load(None, {"export.timeout_ms": 5, "server.data_dir": ":memory:"}))
    assert "# Unit: milliseconds. Rule: at least 1. Default: 10000.\ntimeout_ms = 5\n" in text
    assert '\ndata_dir = ":memory:"\n' in text
    assert "\n# drain_s = 10.0\n" in text
    path = tmp_path / "bridge.toml"
    path.write_text(text)
    assert load(path).server.data_dir is None


WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


SETTINGS = st.fixed_dictionaries(
    {
        "export": st.fixed_dictionaries(
            {
                "path": WORDS,
                "headers": st.dictionaries(
                    st.from_regex(r"x-[a-z0-9_.-]*x", fullmatch=True),
                    st.from_regex(r"[\x20-\x7e]*", fullmatch=True).map(str.strip),
                ),
                "timeout_ms": st.integers(min_value=1),
                "protocol": st.sampled_from(["grpc", "http/protobuf", "file"]),
            }
        ),
        "server": st.fixed_dictionaries({"drain_s": st.floats(min_value=0, allow_infinity=False)}),
        "admission": st.fixed_dictionaries({"resource_keys": st.lists(st.from_regex(r"[a-z][a-z.]*(\.\*)?", fullmatch=True))}),
    }
)


@given(SETTINGS)
def test_round_trip(settings: dict[str, dict[str, object]]) -> None:
    """A rendered configuration reads back as itself, whatever the texts in it that can be obeyed."""
    config = BridgeConfig.model_validate(settings)
    assert BridgeConfig.model_validate(tomllib.loads(render(config, masked=False))) == config
