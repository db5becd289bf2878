"""Settings of further destinations: those of `export`, under a name of their own."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_bridge.config.load import load
from otel_bridge.config.render import render
from otel_bridge.errors import ConfigError
from otel_bridge.model.destination import MAX_DESTINATIONS

ARCHIVE = "OTEL_BRIDGE_DESTINATIONS__ARCHIVE__"


def told(destinations: Mapping[str, Mapping[str, object]], **export: object) -> str:
    """What is said of settings that cannot be obeyed."""
    with pytest.raises(ConfigError) as caught:
        load(None, {"destinations": destinations, **{f"export.{name}": value for name, value in export.items()}})
    return str(caught.value)


def test_they_come_from_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table by table and setting by setting; the standard variables are for `export` alone, which comes first."""
    path = tmp_path / "bridge.toml"
    path.write_text('[destinations.archive]\nprotocol = "http/protobuf"\nendpoint = "http://a:1"\n[destinations.tempo]\n')
    monkeypatch.setenv(f"{ARCHIVE}TIMEOUT_MS", "7")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:2")
    config = load(path)
    assert list(config.exports) == ["default", "archive", "tempo"]
    assert (config.exports["archive"].endpoint, config.exports["archive"].timeout_ms) == ("http://a:1/v1/traces", 7)
    assert (config.export.endpoint, config.exports["tempo"].endpoint) == ("http://b:2", "http://localhost:4317")


@pytest.mark.parametrize("name", ["Upper", "a" * 33, "1st", "a.b", "a/b", "..", "", "default"])
def test_names_are_bounded(name: str) -> None:
    """They become labels of metrics, and names of directories: nothing else gets through."""
    fault = "is the name of the destination that the section export describes" if name == "default" else "must be up to 32 of"
    assert fault in told({name: {}})


def test_faults_name_the_setting_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one setting, of an unknown one, and of rules between several; with the variable that set it."""
    assert told({"archive": {"timeout_ms": 0}}) == "destinations.archive.timeout_ms (0) must be at least 1"
    assert told({"archive": {"timeout": 0}}).startswith("destinations.archive.timeout is not a setting")
    assert told({"archive": {"client_key": __file__}}) == (
        "destinations.archive.client_key is set, but destinations.archive.client_certificate is not: give both, or neither"
    )
    assert told({"archive": {"certificate": __file__, "endpoint": "http://export.example:1"}}) == (
        "destinations.archive has certificates, but destinations.archive.endpoint (http://export.example:1) is plain text: "
        "use https://, or drop them"
    )
    monkeypatch.setenv(f"{ARCHIVE}RETRY_MAX_S", "x")
    assert told({}) == f"destinations.archive.retry_max_s ('x') must be a number (set by {ARCHIVE}RETRY_MAX_S)"


def test_two_do_not_write_to_one_file(tmp_path: Path) -> None:
    """Each would cut off what the other wrote, or write into its line; one file by another name is one file."""
    path = tmp_path / "spans.jsonl"
    (tmp_path / "link.jsonl").symlink_to(path)
    here, there = ({"protocol": "file", "path": str(each)} for each in (path, tmp_path / "link.jsonl"))
    assert told({"archive": there}, **here) == (
        f"export.path and destinations.archive.path are one file ({there['path']}): a file has one writer, so name another"
    )
    assert "destinations.a.path and destinations.b.path are one file (-)" in told(
        {"a": {"protocol": "file"}, "b": {"protocol": "file"}}
    )
    assert load(None, {"destinations": {"archive": here, "tempo": {"path": here["path"]}}})


def test_there_are_so_many() -> None:
    """As a spool on disk has numbers for; one more is refused before anything is opened."""
    names = {f"d{number}": {} for number in range(MAX_DESTINATIONS)}
    assert told(names) == "destinations has 62 tables: with export, there may be 62 destinations at most"
    del names["d0"]
    assert len(load(None, {"destinations": names}).exports) == MAX_DESTINATIONS


def test_they_are_shown_without_their_secrets(tmp_path: Path) -> None:
    """And what is shown with them is read back as it was."""
    config = load(None, {"destinations": {"archive": {"endpoint": "http://a:1", "headers": {"x-key": "hush"}}}})
    assert "hush" not in render(config)
    path = tmp_path / "bridge.toml"
    path.write_text(render(config, masked=False))
    assert load(path) == config
