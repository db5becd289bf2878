"""
A mapping and the program it was made with, brought together.

    from the ETRecord, or whatever the mapping comes from     debug handle maps, handles, operators
    from the `.pte`                                           kernel names, XNNPACK's nodes, instructions without handles

Invariants
* Only what fits is merged: a program of another model is refused, with the first thing that differs.
* Methods that call nothing, as those that give a constant (`constant_methods`), are in no map, and stay out.
* Debug handle maps leave out the bodies of control flow, so a program with jumps may have more delegate calls than they.
"""

from collections.abc import Mapping as Map

from otel_bridge.errors import MalformedMapping
from otel_bridge.mapping.document import canonical
from otel_bridge.mapping.faults import malformed, named, quoted
from otel_bridge.mapping.pte import Program
from otel_bridge.v1 import mapping_pb2 as pb


def merge(mapping: pb.Mapping, program: Program) -> pb.Mapping:
    """The canonical mapping with what the program adds. Raises `MalformedMapping` where the two are not of one model."""
    result = pb.Mapping()
    result.CopyFrom(mapping)
    methods = {method.name: method for method in program.mapping.methods}
    for method in result.methods:
        if method.name not in methods:
            raise _foreign(f"methods[{named(method.name)}]", "a method that the program does not have")
        _merge_method(method, methods.pop(method.name), jumping=method.name in program.jumping)
    if unknown := [name for name, method in methods.items() if method.instructions]:
        raise _foreign(f"methods[{named(min(unknown))}]", "a method of the program that the mapping does not have")
    return canonical(result)


def _merge_method(method: pb.Method, ran: pb.Method, *, jumping: bool) -> None:
    known = {instruction.id: instruction for instruction in method.instructions}
    there = {instruction.id: instruction for instruction in ran.instructions}
    for number in sorted(known.keys() | there.keys()):
        where = f"methods[{named(method.name)}].instructions[{number}]"
        if number in known:
            _merge_instruction(known[number], there, where)
        elif there[number].delegate and not jumping:
            raise _foreign(where, f"a call of {quoted(there[number].delegate)} in the program that the mapping does not have")
        else:
            method.instructions.add().CopyFrom(there[number])


def _merge_instruction(instruction: pb.Instruction, there: Map[int, pb.Instruction], where: str) -> None:
    ran = there.get(instruction.id, pb.Instruction())
    if _what(instruction) != _what(ran):
        raise _foreign(where, f"{_what(instruction)}, and in the program {_what(ran)}")
    if instruction.kernel and instruction.kernel != ran.kernel:
        raise _foreign(f"{where}.kernel", f"{quoted(instruction.kernel)}, and in the program {quoted(ran.kernel)}")
    handles = set(instruction.handles)
    for index, node in enumerate(ran.nodes):
        if node.handle and node.handle not in handles:
            raise _foreign(
                f"{where}.nodes[{index}]", f"a node of the program with handle {node.handle}, which the call does not have"
            )
    if instruction.nodes and list(instruction.nodes) != list(ran.nodes):
        raise _foreign(f"{where}.nodes", "other nodes than the program's")
    instruction.kernel = ran.kernel
    del instruction.nodes[:]
    instruction.nodes.extend(ran.nodes)


def _what(instruction: pb.Instruction) -> str:
    if instruction.delegate:
        return f"a call of {quoted(instruction.delegate)}"
    return "a kernel call" if instruction.kernel or instruction.handles else "neither a kernel call nor a delegate call"


def _foreign(where: str, found: str) -> MalformedMapping:
    return malformed(where, found, "mapping and program are of different models or exports: take both from one export")
