"""Messages with one field set to something, for each field that holds text or bytes: found by the descriptors."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_TEXTUAL = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def with_each_field(base: Message, value: bytes) -> Iterator[tuple[str, Any]]:
    """
    The path of each field of text or bytes, at any depth, and a copy of `base` where it is `value`.

    What is above the field is made where `base` has it not, and is the first of its kind where it is repeated. A field of text
    gets `value` as far as it is UTF-8.
    """
    for path in _paths(base.DESCRIPTOR):
        message = type(base)()
        message.CopyFrom(base)
        _set(message, path, value)
        yield ".".join(field.name for field in path), message


def _paths(descriptor: Any, above: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in descriptor.fields:
        if field.type in _TEXTUAL:
            yield (*above, field)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from _paths(field.message_type, (*above, field))


def _set(message: Any, path: tuple[FieldDescriptor, ...], value: bytes) -> None:
    *above, last = path
    for field in above:
        inside = getattr(message, field.name)
        if field.is_repeated:
            message = inside[0] if inside else inside.add()
        else:
            message = inside
            message.SetInParent()
    told: bytes | str = value if last.type == FieldDescriptor.TYPE_BYTES else value.decode("utf-8", "ignore")
    if last.is_repeated:
        getattr(message, last.name).append(told)
    else:
        setattr(message, last.name, told)
