"""Mappings from live programs against those read back from the files that ExecuTorch itself writes."""

import ast
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.etrecord import read_etrecord
from otel_bridge.mapping.identity import key_of, typeless_entry
from otel_bridge.mapping.merge import merge
from otel_bridge.mapping.pte import build_id_of, read_program
from otel_bridge.mapping.source import read_source
from otel_bridge.v1 import mapping_pb2 as pb

pytestmark = pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk

MODELS = ("toy_str", "toy_int", "xnnpack", "demo", "awkward", "portable", "configured", "external")
WAYS = ("recorded", "copied", "consumed")


def made(folder: Path, way: str) -> pb.MappingFile:
    """What was made in the export script."""
    return pb.MappingFile.FromString((folder / f"{way}.binpb").read_bytes())


def read_back(folder: Path, record: str = "model.etrecord") -> pb.Mapping:
    """What the bridge reads in the saved files."""
    program = read_program((folder / "model.pte").read_bytes())
    return merge(read_etrecord((folder / record).read_bytes()), program)


def facts_of(folder: Path) -> dict[str, Any]:
    """What the export script saw."""
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    return facts


def typeless(mapping: pb.Mapping) -> pb.Mapping:
    """The mapping with its identifiers as an ETRecord, whose keys are JSON's, has them."""
    result = pb.Mapping()
    result.CopyFrom(mapping)
    for method in result.methods:
        for call in method.instructions:
            entries = [typeless_entry(str(key_of(entry)[1]), list(entry.handles)) for entry in call.entries]
            del call.entries[:]
            call.entries.extend(entries)
    return canonical(result)


@pytest.mark.parametrize("record", ["model.etrecord", "lowered.etrecord"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_a_live_program_gives_what_its_files_give(model: str, way: str, record: str, exported: Path) -> None:
    """
    Methods, handles, kernels, nodes, identifiers, operators, lines and modules are those of ETRecord and `.pte`, all of them.

    So it is for graphs that were recorded before the lowering and after it, whether this program or the ETRecord kept them.
    """
    file = made(exported / model, way)
    assert typeless(file.mapping) == read_back(exported / model, record)
    assert (file.name, file.version) == ("m", "1")


def test_the_models_are_what_they_are_for(exported: Path) -> None:
    """There are several methods, fused and split operators, kernels between delegates, nodes of XNNPACK, lines and modules."""
    toy = made(exported / "toy_str", "recorded").mapping
    forward, other = toy.methods
    assert [bool(each.delegate) for each in forward.instructions] == [True, False, True]
    assert [bool(each.delegate) for each in other.instructions] == [False, True]
    entries = {entry.text: list(entry.handles) for entry in forward.instructions[0].entries}
    assert {len(handles) for handles in entries.values()} == {1, 2}
    assert set(entries["toy::exp#1"]) < set(entries["toy::silu#2"])
    operators = [each for call in forward.instructions for known in call.operators for each in known.operators]
    assert {each.module_path for each in operators} == {"", "stem", "head"}
    assert all(each.file.endswith("toy_delegate.py") and each.line for each in operators)
    nodes = [
        node.kind for call in made(exported / "xnnpack", "recorded").mapping.methods[0].instructions for node in call.nodes
    ]
    assert "Conv2d" in nodes


def test_the_toy_says_what_it_will_log(exported: Path) -> None:
    """Its files are of one export; the payload of each instance lists the identifiers of its map, in order of execution."""
    folder = exported / "toy"
    pte = (folder / "model.pte").read_bytes()
    file = read_source((folder / "model.mapping").read_bytes())
    assert (file.build_id, file.name, file.version) == (build_id_of(pte), "toy", "1.0")
    assert typeless(file.mapping) == merge(read_etrecord((folder / "model.etrecord").read_bytes()), read_program(pte))
    maps = [
        [(key_of(entry)[1], list(entry.handles)) for entry in call.entries]
        for method in file.mapping.methods
        for call in method.instructions
        if call.delegate == "BridgeToyBackend"
    ]
    payloads = [found.decode().splitlines() for found in re.findall(rb"str\n(?:[\x20-\x7e]+\t\w+\n)+", pte)]
    logged = [[line.split("\t") for line in lines] for _, *lines in payloads]
    assert sorted(sorted(identifier for identifier, _ in lines) for lines in logged) == sorted(
        [identifier for identifier, _ in entries] for entries in maps
    )
    assert ["conv_relu", "exp", "silu"] in [[name for _, name in lines] for lines in logged]


@pytest.mark.parametrize("model", ["toy_str", "toy_int", "demo"])
def test_identifiers_keep_their_type(model: str, exported: Path) -> None:
    """An int stays an int and a str a str, which the ETRecord loses; handles are those of ExecuTorch's own map."""
    maps: dict[str, dict[int, dict[str, Any]]] = ast.literal_eval(facts_of(exported / model)["delegate_map"])
    found = {
        method.name: {
            call.id: {
                "name": call.delegate,
                "delegate_map": {key_of(entry)[1]: tuple(entry.handles) for entry in call.entries},
            }
            for call in method.instructions
            if call.delegate
        }
        for method in made(exported / model, "recorded").mapping.methods
    }
    assert found == maps
    kinds = {type(key) for calls in maps.values() for call in calls.values() for key in call["delegate_map"]}
    assert kinds == {str if model == "toy_str" else int}


@pytest.mark.parametrize("model", MODELS)
def test_without_edge_programs(model: str, exported: Path) -> None:
    """Without them, only the operators of kernels are missing: those inside delegates are known all the same."""
    known, whole = made(exported / model, "alone").mapping, made(exported / model, "copied").mapping
    for method in whole.methods:
        for instruction in method.instructions:
            if not instruction.delegate:
                instruction.ClearField("operators")
    assert known == whole


@pytest.mark.parametrize("model", MODELS)
def test_the_build_id_is_in_the_program(model: str, exported: Path) -> None:
    """However it is written, the program has it; a `.pte` from before has none and hashes to the same."""
    folder = exported / model
    plain = (folder / "plain.pte").read_bytes()
    build_id = hashlib.sha256(plain).hexdigest()
    assert {made(folder, way).build_id for way in (*WAYS, "alone")} == {build_id}
    for name in ("plain.pte", "model.pte", "saved.pte"):
        with (folder / name).open("rb") as file:
            assert build_id_of(file) == build_id
    stamped = (folder / "model.pte").read_bytes()
    assert stamped != plain
    assert hashlib.sha256(stamped).hexdigest() != build_id
    assert read_program(stamped) == read_program(plain)


def test_edge_programs_do_not_get_the_build_id(exported: Path) -> None:
    """Programs share their named data with the edge programs; the build id of one must not come into the next."""
    assert {model: facts_of(exported / model)["kept"] for model in MODELS} == dict.fromkeys(MODELS, False)


@pytest.mark.parametrize("model", ["xnnpack", "portable"])
def test_inference_stays_the_same(model: str, exported: Path) -> None:
    """The real runtime loads the program with the build id and gives the same numbers."""
    assert facts_of(exported / model)["equal_outputs"] is True


def test_a_build_id_of_ones_own(exported: Path) -> None:
    """It takes the place of the hash, also in a program that has that."""
    assert facts_of(exported / "toy_str")["renamed"] == build_id_of((exported / "toy_str" / "renamed.pte").read_bytes())
    assert facts_of(exported / "toy_str")["renamed"] == "camera 7"
    assert (
        'the program has the build id "camera 7", and its bytes cannot be made anew' in facts_of(exported / "toy_str")["unfit"]
    )


def test_a_program_that_cannot_be_made_anew_is_left_alone(exported: Path) -> None:
    """With alignments that nobody told of, the program stays as it is, and its hash is the build id; told of, it gets one."""
    folder = exported / "configured"
    plain = (folder / "plain.pte").read_bytes()
    assert (folder / "unfit.pte").read_bytes() == plain
    assert facts_of(folder)["not_embedded"] == made(folder, "unfit").build_id == build_id_of(plain)
    assert made(folder, "unfit").mapping == made(folder, "recorded").mapping
    assert (folder / "model.pte").read_bytes() != plain


def test_weights_outside_the_program_stay_as_they_are(exported: Path) -> None:
    """The `.ptd` beside a program is not made anew."""
    facts = {model: facts_of(exported / model)["equal_tensors"] for model in MODELS}
    assert facts == {model: [int(model == "external"), True] for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_graphs_of_another_stage_are_refused(model: str, exported: Path) -> None:
    """Edge programs that `to_executorch` has rewritten, or that have other methods, are refused with the way out."""
    facts = facts_of(exported / model)
    assert "`to_executorch` has rewritten; give copy.deepcopy()" in facts["consumed"]
    assert 'edge_program_manager: the methods "foreign", "forward"' in facts["foreign"]
