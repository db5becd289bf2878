"""
How the metadata of delegates are read, declared with a mapping: checked, and brought into their canonical form.

Invariant: what passes here has one meaning for every decoder (metadata/declared.py). Whether a binary schema can be read is
seen by whoever reads it: here it is bounded, and told from other files.
"""

import re
from collections.abc import Iterator

from otel_bridge.mapping.faults import malformed, named, quoted
from otel_bridge.mapping.json_input import list_at, load_strictly, object_at
from otel_bridge.mapping.limits import check_text
from otel_bridge.v1 import mapping_pb2 as pb

MAX_FORMATS = 256
"""Of one mapping: more than there are backends."""
MAX_FIELDS = 32
"""Of a layout: as many keys as an event's metadata have."""
MAX_SCHEMA_BYTES = 1 << 20
"""Of a binary schema. TensorFlow Lite's, a large one, has 40 KB."""
MAX_LAYOUT_BYTES = 65_536
"""Of a layout's JSON."""
MAX_BYTES_FIELD = 1024
"""Of a field `bytes<N>`: its hex digits are one attribute, of which back ends keep 2,048 bytes."""

_NAME = re.compile(r"[a-z0-9_]{1,64}\Z")
_TYPE = re.compile(r"(?:[iu](?:8|16|32|64)|f(?:32|64)|bool|bytes<(?P<count>[1-9]\d{0,3})>)\Z")
_UNIT = re.compile(r"[A-Za-z0-9%/.*^{}_-]{0,32}\Z")


def canonical_format(source: pb.MetadataFormat, where: str) -> pb.MetadataFormat:
    """The declaration with nothing in it but what is known. Raises `MalformedMapping`."""
    check_text(source.delegate, f"{where}.delegate", required=True)
    which = source.WhichOneof("format")
    if which is None:
        raise malformed(where, "no format", "set `layout` or `flatbuffer`")
    if which == "layout":
        layout = pb.StructLayout(fields=_fields(source.layout, f"{where}.layout"), big_endian=source.layout.big_endian)
        return pb.MetadataFormat(delegate=source.delegate, layout=layout)
    schema = source.flatbuffer
    check_schema(schema.bfbs, f"{where}.flatbuffer.bfbs")
    check_text(schema.root_table, f"{where}.flatbuffer.root_table", required=False)
    flatbuffer = pb.FlatbufferSchema(bfbs=schema.bfbs, root_table=schema.root_table)
    return pb.MetadataFormat(delegate=source.delegate, flatbuffer=flatbuffer)


def check_schema(bfbs: bytes, where: str) -> None:
    """Refuses what is no binary schema, or too large for one."""
    if len(bfbs) > MAX_SCHEMA_BYTES:
        raise malformed(where, f"{len(bfbs)} bytes", f"at most {MAX_SCHEMA_BYTES} are taken: leave out what is not used")
    if bfbs[4:8] != b"BFBS":
        raise malformed(where, "no binary schema", "give what `flatc --schema --binary FILE.fbs` writes: a .bfbs")


def read_layout(data: bytes, where: str) -> pb.StructLayout:
    """
    The layout in a JSON text: `{"big_endian": false, "fields": [{"name": "cycles", "type": "u32", "unit": "{cycle}"}]}`.

    Raises `MalformedMapping`.
    """
    if len(data) > MAX_LAYOUT_BYTES:
        raise malformed(where, f"{len(data)} bytes", f"at most {MAX_LAYOUT_BYTES} are taken: is this the right file?")
    layout = pb.StructLayout()
    for key, value, place in object_at(load_strictly(data, where), where, wanted="a layout"):
        if key == "fields":
            for index, item in enumerate(list_at(value, place, wanted="`fields`")):
                layout.fields.append(_field(item, f"{place}[{index}]"))
        elif key == "big_endian" and isinstance(value, bool):
            layout.big_endian = value
        else:
            raise malformed(place, "no member of a layout", "it has `fields`, a list, and may have `big_endian`, true or false")
    return pb.StructLayout(fields=_fields(layout, where), big_endian=layout.big_endian)


def _field(item: object, where: str) -> pb.StructField:
    field = pb.StructField()
    for key, value, place in object_at(item, where, wanted="a field"):
        if key not in ("name", "type", "unit") or not isinstance(value, str):
            raise malformed(place, "no member of a field", "it has `name`, `type` and `unit`, each a string")
        try:
            setattr(field, key, value)
        except UnicodeEncodeError as error:
            raise malformed(place, "half a character", "write it as UTF-8") from error
    return field


def _fields(layout: pb.StructLayout, where: str) -> Iterator[pb.StructField]:
    if not 0 < len(layout.fields) <= MAX_FIELDS:
        raise malformed(f"{where}.fields", f"{len(layout.fields)} fields", f"a layout has 1 to {MAX_FIELDS}")
    seen: set[str] = set()
    for index, field in enumerate(layout.fields):
        place = f"{where}.fields[{index}]"
        if not _NAME.match(field.name):
            raise malformed(f"{place}.name", quoted(field.name), "a name has 1 to 64 characters of [a-z0-9_]")
        if field.name in seen:
            raise malformed(f"{place}.name", f"{named(field.name)} for a second time", "give each field a name of its own")
        seen.add(field.name)
        kind = _TYPE.match(field.type)
        if kind is None or int(kind["count"] or 0) > MAX_BYTES_FIELD:
            known = f"u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool, or bytes<N> with N up to {MAX_BYTES_FIELD}"
            raise malformed(f"{place}.type", quoted(field.type), f"a type is one of {known}")
        if not _UNIT.match(field.unit):
            raise malformed(f"{place}.unit", quoted(field.unit), "a unit is a UCUM code of at most 32 characters, as ns or By")
        yield pb.StructField(name=field.name, type=field.type, unit=field.unit)
