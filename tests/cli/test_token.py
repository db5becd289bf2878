"""`otel-bridge token`."""

import json
import stat
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from otel_bridge.auth.book import read_tokens
from otel_bridge.auth.token import id_in, is_of
from otel_bridge.model.identity import Scope

Cli = Callable[..., Any]


def rows(cli: Cli, *where: object) -> list[dict[str, Any]]:
    """What `list --json` prints."""
    found: list[dict[str, Any]] = json.loads(cli("token", "list", "--json", *where).out)
    return found


def test_a_token_is_printed_once(cli: Cli, tmp_path: Path) -> None:
    """`create` prints the token alone on standard output; afterwards neither the list nor a file has it."""
    where = ("--data-dir", tmp_path / "data")
    done = cli("token", "create", "phones", "--scope", "events:write", "--scope", "mappings:read", *where)
    whole = done.out.removesuffix("\n")
    (kept,) = read_tokens(tmp_path / "data" / "tokens.json")
    assert (done.code, id_in(whole), is_of(whole, kept)) == (0, kept.id, True)
    assert kept.scopes == (Scope.EVENTS_WRITE, Scope.MAPPINGS_READ)
    assert done.err == f"token {kept.id} of phones, for events:write, mappings:read, until it is revoked\n"
    for listed in (cli("token", "list", *where).out, cli("token", "list", "--json", *where).out):
        assert whole not in listed
        assert kept.sha256 not in listed
        assert kept.id in listed
    assert whole.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())


def test_a_token_goes_to_a_file(cli: Cli, tmp_path: Path) -> None:
    """With --output the token is in a new file of the owner's, and nowhere on the terminal; a file that exists is kept."""
    where, output = ("--data-dir", tmp_path / "data"), tmp_path / "token"
    done = cli("token", "create", "ci", "--scope", "mappings:write", "--output", output, *where)
    assert (done.code, done.out) == (0, "")
    assert is_of(output.read_text().strip(), read_tokens(tmp_path / "data" / "tokens.json")[0])
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    before = output.read_text()
    again = cli("token", "create", "other", "--scope", "admin", "--output", output, *where)
    assert again.error == f"{output}: cannot be written: File exists; no token was made"
    assert output.read_text() == before
    new = tmp_path / "new"
    assert cli("token", "create", "ci", "--scope", "admin", "--output", new, *where).code == 1
    assert not new.exists()
    assert [each["name"] for each in rows(cli, *where)] == ["ci"]


def test_rotation_overlaps(cli: Cli, tmp_path: Path) -> None:
    """A second token of a name needs --overlap, which is how long the first is still good; another name stays as it is."""
    where = ("--data-dir", tmp_path)
    create = ("token", "create", "phones", "--scope", "events:write", *where)
    cli("token", "create", "ci", "--scope", "mappings:write", *where)
    first = cli(*create).out.strip()
    assert f"there is a token phones ({id_in(first)})" in cli(*create).error
    second = cli(*create, "--overlap", "7d", "--expires", "90d").out.strip()
    found = {row["id"]: row for row in rows(cli, *where)}
    old, new = found[str(id_in(first))], found[str(id_in(second))]
    assert datetime.fromisoformat(old["expires"]) - datetime.fromisoformat(new["created"]) == timedelta(days=7)
    assert datetime.fromisoformat(new["expires"]) - datetime.fromisoformat(new["created"]) == timedelta(days=90)
    assert [row["expires"] for row in found.values() if row["name"] == "ci"] == [None]
    third = cli(*create, "--overlap", "0m").out.strip()
    states = {row["id"]: row["state"] for row in rows(cli, *where) if row["name"] == "phones"}
    assert states == {id_in(first): "expired", id_in(second): "expired", id_in(third): "active"}


def test_an_overlap_never_lengthens(cli: Cli, tmp_path: Path) -> None:
    """A token that ends before the overlap does still ends then."""
    create = ("token", "create", "phones", "--scope", "events:write", "--data-dir", tmp_path)
    cli(*create, "--expires", "1h")
    cli(*create, "--overlap", "7d")
    old, _ = rows(cli, "--data-dir", tmp_path)
    assert datetime.fromisoformat(old["expires"]) - datetime.fromisoformat(old["created"]) == timedelta(hours=1)


def test_tokens_are_revoked_by_name_or_id(cli: Cli, tmp_path: Path) -> None:
    """`revoke` ends all tokens of a name, or one; where one is not known nothing is revoked."""
    where = ("--data-dir", tmp_path)
    for name in ("a", "b", "c"):
        cli("token", "create", name, "--scope", "admin", *where)
    cli("token", "create", "a", "--scope", "admin", "--overlap", "1d", *where)
    a, b, c, a_too = rows(cli, *where)
    assert cli("token", "revoke", "a", "nobody", *where).error == "there is no token 'nobody'; nothing was revoked"
    assert {row["state"] for row in rows(cli, *where)} == {"active"}
    done = cli("token", "revoke", "a", b["id"], *where)
    assert done.out == f"revoked: token {a['id']} of a\nrevoked: token {b['id']} of b\nrevoked: token {a_too['id']} of a\n"
    assert [row["state"] for row in rows(cli, *where)] == ["revoked", "revoked", "active", "revoked"]
    assert cli("token", "revoke", "a", *where).error == "there is no token 'a'; nothing was revoked"
    assert c["state"] == "active"


def test_a_token_is_of_a_tenant(cli: Cli, tmp_path: Path) -> None:
    """Tenants have names of their own: the token of one is neither in the way of another's nor revoked with it."""
    where = ("--data-dir", tmp_path)
    create = ("token", "create", "phones", "--scope", "events:write", *where)
    for tenant in ((), ("--tenant", "acme"), ("--tenant", "globex")):
        done = cli(*create, *tenant)
        assert done.code == 0
        assert f"of phones{' of tenant ' + tenant[1] if tenant else ''}, for" in done.err
    assert "there is a token phones of tenant acme (" in cli(*create, "--tenant", "acme").error
    default, acme, globex = rows(cli, *where)
    assert [each["tenant"] for each in (default, acme, globex)] == ["", "acme", "globex"]
    assert (
        cli("token", "revoke", "phones", "--tenant", "acme", *where).out
        == f"revoked: token {acme['id']} of phones of tenant acme\n"
    )
    assert cli("token", "revoke", "phones", "--tenant", "acme", *where).error.startswith(
        "there is no token 'phones' of tenant acme;"
    )
    cli("token", "revoke", globex["id"], *where)
    assert [row["state"] for row in rows(cli, *where)] == ["active", "revoked", "revoked"]
    assert "acme" in cli("token", "list", *where).out
    assert "beginning with a letter or digit" in cli(*create, "--tenant", "-x").err


def test_a_file_of_before_tenants(cli: Cli, tmp_path: Path) -> None:
    """Tokens of a file that names no tenants are of the default one; a tenant that is no name makes a file unusable."""
    cli("token", "create", "old", "--scope", "admin", "--data-dir", tmp_path)
    file = tmp_path / "tokens.json"
    text = file.read_text()
    file.write_text(text.replace('"tenant": "",', ""))
    assert [(row["name"], row["tenant"]) for row in rows(cli, "--data-dir", tmp_path)] == [("old", "")]
    file.write_text(text.replace('"tenant": ""', '"tenant": "a\\nb"'))
    assert "holds no tokens as" in cli("token", "list", "--data-dir", tmp_path).error


def test_where_tokens_are(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data directory is that of the options, of the settings or of the environment; a file may take its place."""
    file = tmp_path / "bridge.toml"
    file.write_text(f'[server]\ndata_dir = "{tmp_path / "one"}"\n')
    cli("token", "create", "a", "--scope", "admin", "--config", file)
    monkeypatch.setenv("OTEL_BRIDGE_SERVER__DATA_DIR", str(tmp_path / "two"))
    cli("token", "create", "b", "--scope", "admin")
    cli("token", "create", "c", "--scope", "admin", "--file", tmp_path / "three" / "tokens.json")
    found = {path.parent.name: [each.name for each in read_tokens(path)] for path in tmp_path.glob("*/tokens.json")}
    assert found == {"one": ["a"], "two": ["b"], "three": ["c"]}
    monkeypatch.setenv("OTEL_BRIDGE_SERVER__DATA_DIR", ":memory:")
    assert "keeps no tokens; name a file with --file" in cli("token", "list").error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("create",), "Missing argument 'NAME'"),
        (("create", "phones"), "Missing option '--scope'"),
        (("create", "phones", "--scope", "all"), "'all' is not one of 'events:write'"),
        (("create", "a b", "--scope", "admin"), "'a b' must be 1 to 64 letters"),
        (("create", "x" * 65, "--scope", "admin"), "must be 1 to 64 letters"),
        (("create", "a\n", "--scope", "admin"), "must be 1 to 64 letters"),
        (("create", "a", "--scope", "admin", "--expires", "soon"), "'soon' must be a number of minutes, hours or days"),
        (("create", "a", "--scope", "admin", "--overlap", "-1d"), "must be a number of minutes, hours or days"),
        (("revoke",), "Missing argument 'NAME_OR_ID...'"),
    ],
)
def test_what_is_written_wrongly(arguments: tuple[str, ...], told: str, cli: Cli, tmp_path: Path) -> None:
    """What cannot be understood ends with 2 and makes nothing."""
    done = cli("token", *arguments, "--data-dir", tmp_path / "data")
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert not (tmp_path / "data").exists()
