"""
Debug handle maps that are alive: what `ExecutorchProgramManager` has as properties.

Invariants
* They are read by the rules of maps JSON (mapping/maps_json.py), but for identifiers: their types are still there, and kept.
* A backend need not have used a builder, so nothing is taken for valid: what cannot be resolved with is refused by its place.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from otel_bridge.mapping.faults import described, malformed, named
from otel_bridge.mapping.identity import INT32_MAX, INT32_MIN, UNSET_NUMBER, is_number
from otel_bridge.mapping.maps_json import handles_at, mapping_of, text_at
from otel_bridge.v1 import mapping_pb2 as pb

Methods = Mapping[str, Mapping[int, Any]]


def read_live_maps(debug_handle_map: Methods, delegate_map: Methods) -> pb.Mapping:
    """
    The mapping of two maps, not yet canonical and without operators.

    debug_handle_map   method -> instruction -> handles of a delegate call, or the handle of a kernel call
    delegate_map       method -> instruction -> {"name": backend, "delegate_map": identifier -> handles, or None}

    Raises `MalformedMapping`.
    """
    handles = {method: _keyed_by_text(known, _as_list) for method, known in debug_handle_map.items()}
    calls = {method: _keyed_by_text(known, _without_entries) for method, known in delegate_map.items()}
    mapping = mapping_of(handles, calls)
    for method in mapping.methods:
        for instruction in method.instructions:
            if instruction.delegate:
                entries = delegate_map[method.name][instruction.id].get("delegate_map") or {}
                where = f"delegate_map[{named(method.name)}][{instruction.id}].delegate_map"
                instruction.entries.extend(_entries(entries, where))
    return mapping


def _keyed_by_text(known: Mapping[int, Any], reading: Any) -> dict[str, Any]:
    return {str(instruction): reading(each) for instruction, each in known.items()}


def _as_list(handles: Any) -> Any:
    """JSON has lists for tuples."""
    return list(handles) if isinstance(handles, tuple) else handles


def _without_entries(call: Any) -> Any:
    return {"name": call.get("name")}


def _entries(entries: Any, where: str) -> Iterator[pb.MapEntry]:
    if not isinstance(entries, Mapping):
        raise malformed(where, described(entries), "a debug handle map is a dict: identifier -> tuple of debug handles")
    for index, (identifier, handles) in enumerate(entries.items()):
        place = f"{where}[at {index}]"
        entry = pb.MapEntry(handles=handles_at(_as_list(handles), place))
        if isinstance(identifier, str):
            entry.text = text_at(identifier, place)
        elif isinstance(identifier, int) and not isinstance(identifier, bool) and is_number(identifier):
            entry.number = identifier
        else:
            rule = f"an identifier is a str, or an int from {INT32_MIN} to {INT32_MAX} that is not {UNSET_NUMBER}"
            raise malformed(place, described(identifier), f"{rule}: build the map with otel_bridge.aot")
        yield entry
