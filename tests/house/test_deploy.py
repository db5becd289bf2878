"""What deploy/ says, checked as far as it can be without a container engine."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.certificates import make_certificates
from support.engines import ROOT
from support.otlp_sink import OtlpSink
from support.service import EVERYWHERE, WayIn, otel_bridge, running
from support.tokens import Issuer

from otel_bridge.model.identity import Scope

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile: name and argument, continued lines joined, comments left out."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, argument) for name, _, argument in (line.partition(" ") for line in joined.splitlines() if line)]


def serve_commands() -> list[list[str]]:
    """Both ways in which the bridge is started: by the image, and by compose."""
    (image,) = [json.loads(argument) for name, argument in instructions() if name == "CMD"]
    return [image, COMPOSE["services"]["bridge"]["command"]]


def health_check() -> str:
    """The Python of the image's health check."""
    (check,) = [argument for name, argument in instructions() if name == "HEALTHCHECK"]
    interpreter, flag, source = json.loads(check[check.index("[") :])
    assert (interpreter, flag) == ("python", "-c")
    return str(source)


def is_healthy(http: str) -> bool:
    """What the health check says of a bridge at that address."""
    source = health_check().replace("127.0.0.1:4418", http)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, check=False).returncode == 0


def test_the_image_copies_what_exists() -> None:
    """Each file that the image takes from the project exists and is not kept from it by .dockerignore."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        source.removeprefix("./")
        for name, argument in instructions()
        if name == "COPY" and "--from" not in argument
        for source in argument.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in allowed)


def test_the_image_is_slim_and_not_root() -> None:
    """Every stage starts from a slim image by its plain name, and the last one runs as an unprivileged user id."""
    stages = [argument.split()[0] for name, argument in instructions() if name == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", stage) for stage in stages)
    assert len(stages) == 2
    users = [argument for name, argument in instructions() if name == "USER"]
    assert all(int(user.split(":")[0]) > 0 for user in users)
    assert len(users) == 1


def test_health_is_asked_where_the_image_listens() -> None:
    """The health check asks /healthz on the HTTP port that the image's own command opens, in Python that compiles."""
    source = health_check()
    compile(source, "HEALTHCHECK", "exec")
    image = serve_commands()[0]
    port = image[image.index("--http") + 1].rpartition(":")[2]
    assert set(re.findall(r"'(\w+)://127.0.0.1:(\d+)/healthz'", source)) == {("http", port), ("https", port)}
    assert port in [port for name, argument in instructions() if name == "EXPOSE" for port in argument.split()]


@pytest.mark.parametrize("command", serve_commands(), ids=["Dockerfile", "compose.yaml"])
def test_the_command_line_knows_the_options(command: list[str]) -> None:
    """`serve` has each option that deploy/ gives it, and both doors listen on an address that is spelt out."""
    program = Path(sys.executable).with_name("otel-bridge")
    said = subprocess.run([program, command[0], "--help"], capture_output=True, text=True, check=True).stdout
    options = {word.partition("=")[0] for word in command if word.startswith("--")}
    assert {option for option in options if not re.search(rf"{option}\b", said)} == set()
    line = " ".join(command).replace("=", " ")
    for door in ("--grpc", "--http"):
        assert re.search(rf"{door} \d+\.\d+\.\d+\.\d+:\d+", line)


def test_compose_hangs_together() -> None:
    """What compose.yaml refers to exists: build files, services and volumes; every published port names its address."""
    services = COMPOSE["services"]
    for service in services.values():
        build = service.get("build")
        if build:
            context = (ROOT / "deploy" / build["context"]).resolve()
            assert context == ROOT
            assert (context / build["dockerfile"]).is_file()
        assert set(service.get("depends_on", ())) <= set(services)
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= set(COMPOSE["volumes"])
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        assert all(re.fullmatch(r"\d+\.\d+\.\d+\.\d+:\d+:\d+", port) for port in service["ports"])
    hosts = re.findall(r"http://([a-z]+):\d+", " ".join(services["bridge"]["command"]))
    assert set(hosts) <= set(services)
    assert hosts


def test_compose_starts_a_bridge_with_tls_and_tokens(tmp_path: Path) -> None:
    """The command and the variables of compose.yaml start a bridge on all interfaces, healthy, closed without a token."""
    made = make_certificates(tmp_path)
    mounted = {"/run/secrets/tls-certificate": made.server, "/run/secrets/tls-key": made.server_key}
    bridge = COMPOSE["services"]["bridge"]
    assert set(mounted) == {f"/run/secrets/{name}" for name in bridge["secrets"]}
    variables = {name: str(mounted.get(value, value)) for name, value in bridge["environment"].items()}
    token = tmp_path / "token"
    token.write_text(Issuer(tmp_path / "data" / "tokens.json").issue(*Scope))
    everywhere = [re.sub(r":\d+$", ":0", word) for word in bridge["command"][1:] if word.startswith(("--grpc", "--http"))]
    assert len(everywhere) == 2
    settings = {name.removeprefix("OTEL_BRIDGE_"): value for name, value in variables.items()}
    way_in = WayIn(made.authority, token)
    with OtlpSink() as sink, running(tmp_path, sink, *everywhere, way_in=way_in, **settings) as service:
        assert f"listens for gRPC on {EVERYWHERE}:" in service.process.log.read_text()
        assert is_healthy(service.http)
        closed = httpx.get(f"https://{service.http}/v1/mappings", verify=way_in.context, timeout=30, trust_env=False)
        assert (closed.status_code, service.get("/v1/mappings").status_code) == (401, 200)


def test_the_health_check_knows_plain_text(tmp_path: Path) -> None:
    """The image's health check is content with a bridge without TLS, and not with nobody."""
    with OtlpSink() as sink, running(tmp_path, sink) as service:
        assert is_healthy(service.http)
    assert not is_healthy(service.http)


def test_the_image_does_not_open_its_doors_by_itself(tmp_path: Path) -> None:
    """The image's own command, without any setting, is refused with the ways out."""
    done = otel_bridge(*serve_commands()[0], OTEL_BRIDGE_SERVER__DATA_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "set server.insecure = true" in done.stderr
