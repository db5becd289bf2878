"""
Debug handle maps as ExecuTorch's program manager gives them, written as JSON.

    {"debug_handle_map": {METHOD: {INSTRUCTION: [HANDLE, ...] | HANDLE}},
     "delegate_map":     {METHOD: {INSTRUCTION: {"name": BACKEND, "delegate_map": {IDENTIFIER: [HANDLE, ...]} | null}}}}

Invariants
* A list of handles is a delegate call, a number is a kernel call (exir/emit/_emitter.py, `_add_debug_handle`).
* `null` and 0 as handles are ExecuTorch's words for "none" (exir/debug_handle_utils.py): they drop out, never become handles.
* A delegate call whose backend is not named is refused: without it, foreign dumps could not be told from fitting ones.
"""

from collections.abc import Iterator

from otel_bridge.mapping.document import FORMAT, canonical
from otel_bridge.mapping.faults import described, malformed, quoted
from otel_bridge.mapping.identity import typeless_entry
from otel_bridge.mapping.json_input import integer_at, list_at, load_strictly, object_at
from otel_bridge.mapping.limits import MAX_HANDLE, MAX_INSTRUCTION_ID
from otel_bridge.v1 import mapping_pb2 as pb

_Methods = dict[str, dict[int, pb.Instruction]]

_REMAKE = "write both maps from one ExecutorchProgramManager: its properties debug_handle_map and delegate_map"


def read_maps(data: bytes) -> pb.Mapping:
    """The canonical mapping of a JSON text with both maps; other members are ignored. Raises `MalformedMapping`."""
    return canonical(maps_in(load_strictly(data, "maps JSON")))


def maps_in(value: object) -> pb.Mapping:
    """The mapping of a loaded JSON object with both maps, not yet canonical."""
    members = {key: member for key, member, _ in object_at(value, "maps JSON", wanted="a mapping source")}
    return mapping_of(members.get("debug_handle_map"), members.get("delegate_map"))


def mapping_of(debug_handle_map: object, delegate_map: object) -> pb.Mapping:
    """
    The mapping that two loaded maps make, not yet canonical and without operators.

    A `delegate_map` of None is taken for a program without delegates; a `debug_handle_map` of None is refused.
    """
    if not debug_handle_map:
        found = "missing" if debug_handle_map is None else described(debug_handle_map)
        raise malformed("debug_handle_map", f"{found}: nothing to resolve with", _REMAKE)
    methods: _Methods = {}
    _read_delegates(methods, delegate_map if delegate_map is not None else {})
    _read_handles(methods, debug_handle_map)
    mapping = pb.Mapping(format=FORMAT)
    for name, instructions in methods.items():
        mapping.methods.add(name=name).instructions.extend(instructions.values())
    return mapping


def _read_delegates(methods: _Methods, delegate_map: object) -> None:
    for name, calls, where in object_at(delegate_map, "delegate_map", wanted="the delegate map"):
        method = methods.setdefault(text_at(name, where), {})
        for key, call, place in object_at(calls, where, wanted="a method of the delegate map"):
            number = _instruction_id(key, place)
            method[number] = _delegate_call(number, call, place)


def _delegate_call(number: int, call: object, where: str) -> pb.Instruction:
    members = {key: member for key, member, _ in object_at(call, where, wanted="a delegate call")}
    backend = members.get("name")
    if not isinstance(backend, str) or not backend:
        raise malformed(f"{where}.name", described(backend), "the name of the backend is a string of at least one character")
    instruction = pb.Instruction(id=number, delegate=text_at(backend, f"{where}.name"))
    entries = members.get("delegate_map")
    for key, handles, place in object_at(
        {} if entries is None else entries, f"{where}.delegate_map", wanted="a debug handle map"
    ):
        instruction.entries.append(typeless_entry(text_at(key, place), list(handles_at(handles, place))))
    return instruction


def _read_handles(methods: _Methods, debug_handle_map: object) -> None:
    for name, instructions, where in object_at(debug_handle_map, "debug_handle_map", wanted="the debug handle map"):
        method = methods.setdefault(text_at(name, where), {})
        for key, handles, place in object_at(instructions, where, wanted="a method of the debug handle map"):
            number = _instruction_id(key, place)
            if number in method:
                method[number].handles.extend(handles_at(handles if isinstance(handles, list) else [handles], place))
            elif isinstance(handles, list):
                found = "a list of handles, which is a delegate call, and the delegate map names no backend for it"
                raise malformed(place, found, f"{_REMAKE} (a kernel call has one handle, as a number)")
            elif (handle := _handle(handles, place)) is not None:
                method[number] = pb.Instruction(id=number, handles=[handle])


def handles_at(value: object, where: str) -> Iterator[int]:
    """The debug handles that an identifier or a delegate call stands for."""
    for index, item in enumerate(list_at(value, where, wanted="the value of an identifier")):
        handle = _handle(item, f"{where}[{index}]")
        if handle is not None:
            yield handle


def _handle(value: object, where: str) -> int | None:
    """A debug handle; None where the graph node had none."""
    if value is None:
        return None
    return integer_at(value, where, least=0, most=MAX_HANDLE, wanted="a debug handle") or None


def _instruction_id(key: str, where: str) -> int:
    if key.isascii() and key.isdigit() and len(key) <= len(str(MAX_INSTRUCTION_ID)):
        number = int(key)
        if str(number) == key and number <= MAX_INSTRUCTION_ID:
            return number
    raise malformed(where, f"the key {quoted(key)}", f"an instruction id is an integer from 0 to {MAX_INSTRUCTION_ID}")


def text_at(text: str, where: str) -> str:
    """A text that protobuf can hold: JSON may write half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise malformed(where, "half of a surrogate pair, which is no character", "write the text in UTF-8") from error
    return text
