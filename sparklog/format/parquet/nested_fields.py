"""Fits structs of a file to a newer schema: structs may have got fields, and fields may stand in another order.

    stored = stored_type(wanted, read_elements(elements))      # struct<a: int> for struct<b: string, a: int>
    array = add_fields(array, wanted)                          # b is null

Rules: pure; the elements are untrusted, and only their names and numbers of children are used.
Not for: types of numbers (``typed_reader``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from sparklog.format.parquet.pages import SchemaElement


def stored_type(wanted: pa.DataType, elements: Iterable[SchemaElement]) -> pa.DataType:
    """Return the type that a column of type ``wanted`` has in a file with these elements: its structs have the fields
    of the file, in their order. Raises ValueError if a struct has others, LookupError if elements are missing."""
    rest = deque(elements)
    return _stored_type(wanted, rest.popleft(), rest)


def _stored_type(wanted: pa.DataType, element: SchemaElement, rest: deque[SchemaElement]) -> pa.DataType:
    if pa.types.is_map(wanted):
        for _ in ("key_value", "key"):
            rest.popleft()
        return pa.map_(wanted.key_type, _stored_type(wanted.item_type, rest.popleft(), rest))
    if pa.types.is_list(wanted):
        rest.popleft()
        return pa.list_(_stored_type(wanted.value_type, rest.popleft(), rest))
    if not pa.types.is_struct(wanted):
        return wanted
    fields: dict[str, pa.Field] = {}
    for _ in range(element.children):
        child = rest.popleft()
        if child.name in fields or wanted.get_field_index(child.name) < 0:
            raise ValueError(f"its struct {element.name} has a field {child.name}, and is to be {wanted}")
        fields[child.name] = pa.field(child.name, _stored_type(wanted.field(child.name).type, child, rest))
    if not fields:
        raise ValueError(f"its {element.name} has no fields, and is to be {wanted}")
    return pa.struct(list(fields.values()))


def add_fields(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array of a ``stored_type`` as the wanted type; fields that its structs do not have are null."""
    if array.type == wanted:
        return array
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(wanted):
        columns = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        members = [
            add_fields(columns[field.name], field.type) if field.name in columns else pa.nulls(len(array), field.type)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=nulls)
    if pa.types.is_map(wanted):
        items = add_fields(array.items, wanted.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=wanted, mask=nulls)
    values = add_fields(array.values, wanted.value_type)
    return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=nulls)
