"""What is not shown of mappings and metadata."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mappings import mapping_of
from support.scenes import batch_of, call, delegated, execute, spans_in

from otel_bridge.config.keys import allow
from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.pipeline.stages import Stages
from otel_bridge.spans import attributes as at
from otel_bridge.spans.assemble import assemble
from otel_bridge.spans.withholding import SHOW_PATH, stripped, withhold
from otel_bridge.v1 import mapping_pb2

HOME, MAC, ROOT = (
    "/" + "home",
    "/" + "Users",
    "/" + "root",
)  # a checkout holds no path that one machine has, not even as an example


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"{HOME}/ana/net/model.py", "net/model.py"),
        (f"{HOME}/ana/model.py", "model.py"),
        (f"{MAC}/ana/net/model.py", "net/model.py"),
        ("/System/Volumes/Data/Users/ana/net/model.py", "net/model.py"),
        (r"C:\Users\Ana Perez\net\model.py", r"net\model.py"),
        (f"C:{MAC}/ana/net/model.py", "net/model.py"),
        (r"\\server\share\home\ana\model.py", "model.py"),
        (f"/usr/local/google{HOME}/ana/net/model.py", "net/model.py"),
        ("/mnt/c/Users/ana/model.py", "model.py"),
        ("/data/users/ana/model.py", "model.py"),
        (f"{HOME}/users/ana/model.py", "model.py"),
        (f"{ROOT}/net/model.py", "net/model.py"),
        ("/var/root/model.py", "model.py"),
        (f"{HOME}/ana/.venv/lib/python3.11/site-packages/torch/nn/modules/conv.py", "torch/nn/modules/conv.py"),
        ("/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", "torch/nn/modules/conv.py"),
        (r"D:\env\Lib\site-packages\torch\functional.py", r"torch\functional.py"),
        ("/a/site-packages/b/site-packages/c.py", "c.py"),
        (f"{HOME}/ana/repo/home/views/model.py", "repo/home/views/model.py"),
        ("/workspace/net/model.py", "/workspace/net/model.py"),
        ("home/page/model.py", "home/page/model.py"),
        ("net/model.py", "net/model.py"),
        ("<eval_with_key>.1", "<eval_with_key>.1"),
    ],
)
def test_a_path_loses_what_names_a_person(path: str, shown: str) -> None:
    """Home directories of Linux, macOS and Windows go, and all before an installed package; what is relative stays."""
    assert stripped(path) == shown


@given(st.text(), st.sampled_from(sorted(SHOW_PATH)))
def test_any_path_is_cut_only_at_its_head(path: str, how: str) -> None:
    """Whatever stands in a mapping, what is shown is an end of it."""
    assert path.endswith(SHOW_PATH[how](path))


ATTRIBUTES = (
    (at.DELEGATE_DEBUG_ID, "conv"),
    (at.METADATA_PREFIX + "cycles", 5),
    (at.METADATA_PREFIX + "timing_start", 1),
    (at.METADATA_PREFIX + "user", "ana"),
    (at.METADATA_VALUES, ("ana",)),
    (at.METADATA_RAW, "616e61"),
    (at.METADATA_ERROR, "raised ValueError: ana"),
    (at.CODE_FILE_PATH, f"{HOME}/ana/model.py"),
)


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        (["cycles", "timing_*"], {"cycles", "timing_start"}),
        (["*", "!user"], {"cycles", "timing_start"}),
        ([], set()),
    ],
)
def test_metadata_have_a_list_of_their_own(listed: list[str], shown: set[str]) -> None:
    """Only listed keys are shown; lines, bytes and words of errors, which may hold anything, are not."""
    said = dict(withhold(allow(listed), SHOW_PATH["strip"])(ATTRIBUTES))
    metadata = {key.removeprefix(at.METADATA_PREFIX) for key in said if key.startswith(at.METADATA_PREFIX)}
    assert metadata == shown
    assert "ana" not in str(said)
    assert "616e61" not in str(said)
    assert at.METADATA_ERROR in said
    assert said[at.DELEGATE_DEBUG_ID] == "conv"


def test_without_a_list_all_is_shown() -> None:
    """What has no key, too."""
    assert withhold(None, SHOW_PATH["keep"])(ATTRIBUTES) == ATTRIBUTES


def test_a_cut_text_still_counts_as_cut() -> None:
    """A path that was too long for a back end is told from one that was not, stripped or not."""
    ((_, path),) = withhold(None, SHOW_PATH["strip"])(((at.CODE_FILE_PATH, at.cut(f"{HOME}/ana/" + "x" * 3000)),))
    assert isinstance(path, at.Cut)


def test_spans_show_what_is_left() -> None:
    """Templates and metadata of a pipeline pass by it, and the mapping stays whole."""
    mapping = mapping_of({"conv": [1]})
    known = mapping.methods[0].instructions[0].operators.add(handle=1)
    known.operators.add(name="aten.conv", file=f"{HOME}/ana/net/model.py", line=3)
    registry = MemoryRegistry()
    registry.put("", mapping_pb2.MappingFile(build_id="build", mapping=mapping))
    hide = withhold(allow(["a"]), SHOW_PATH["strip"])
    stages = Stages(CompiledMappings(registry, 1 << 20), Decoders(["json"]), 1 << 20, withhold=hide)
    events = [call("DELEGATE_CALL", 0, 0, 9), delegated("conv", 0, 1, 2, metadata=b'{"a":1,"b":"ana"}')]
    spans = spans_in(assemble(stages.run(batch_of((execute(method="forward"), events))), 1 << 20))
    said = {each.key: each.value for span in spans for each in span.attributes}
    assert said[at.CODE_FILE_PATH].string_value == "net/model.py"
    assert said[at.METADATA_PREFIX + "a"].double_value == 1
    assert not any("ana" in str(span) for span in spans)
    assert "ana" in str(registry.get("", "build").mapping)


@pytest.mark.parametrize(("listed", "shown"), [(["cycles"], {"cycles"}), ([], set())])
def test_metadata_that_are_read_together_have_the_same_list(listed: list[str], shown: set[str]) -> None:
    """Many byte strings of a declared layout show no more than one does."""
    mapping = mapping_of({"conv": [1]})
    fields = [mapping_pb2.StructField(name=name, type="u16") for name in ("cycles", "serial")]
    mapping.metadata.add(delegate="Toy", layout=mapping_pb2.StructLayout(fields=fields))
    registry = MemoryRegistry()
    registry.put("", mapping_pb2.MappingFile(build_id="build", mapping=mapping))
    stages = Stages(
        CompiledMappings(registry, 1 << 20), Decoders(), 1 << 20, withhold=withhold(allow(listed), SHOW_PATH["keep"])
    )
    logged = [delegated("conv", 0, n, n + 1, metadata=bytes([n, 0, 77, 0])) for n in range(1, 100)]
    events = [call("DELEGATE_CALL", 0, 0, 200), *logged]
    spans = spans_in(assemble(stages.run(batch_of((execute(method="forward"), events))), 1 << 20))
    keys = [{each.key.removeprefix(at.METADATA_PREFIX) for each in span.attributes if "metadata" in each.key} for span in spans]
    assert keys.count(shown) == (len(logged) if shown else len(spans))
    assert set().union(*keys) == shown
