"""Writes tests/golden/parquet/: tiny Parquet files, and the rows that temper reads from them as JSON lines.

Usage: python make_parquet.py tests/golden/parquet

The lines come from pyarrow's own conversion to Python values, less what Parquet cannot tell from absent: a column or a
member of a struct that is null. Times are ISO text; files, {bytes, path} as datasets writes images, are base64; other
bytes are text, or {"bytes"} where they are not UTF-8.
"""

import base64
import datetime
import decimal
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[1]
UTC = datetime.timezone.utc


def file_or_plain(value, field):
    is_file = field.name == "bytes" and isinstance(value, bytes)
    return base64.b64encode(value).decode() if is_file else plain(value, field.type)


def plain(value, type_):
    if value is None:
        return None
    if pa.types.is_struct(type_):
        members = ((field.name, file_or_plain(value[field.name], field)) for field in type_)
        return {name: v for name, v in members if v is not None}
    if pa.types.is_map(type_):
        return {k: plain(v, type_.item_type) for k, v in value}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return [plain(v, type_.value_type) for v in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(str(np.float32(value))) if type_ == pa.float32() else value  # its shortest digits
    if isinstance(value, datetime.datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def write(name, table, golden=True, **options):
    pq.write_table(table, f"{folder}/{name}.parquet", **options)
    if not golden:
        return
    with open(f"{folder}/{name}.jsonl", "w") as f:
        for row in table.to_pylist():
            values = {field.name: plain(row[field.name], field.type) for field in table.schema}
            kept = {k: v for k, v in values.items() if row[k] is not None}
            f.write(json.dumps(kept, ensure_ascii=False) + "\n")


call = pa.struct([("name", pa.string()), ("arguments", pa.map_(pa.string(), pa.float64()))])
message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(call))])
messages = [
    [
        {"role": "user", "content": f'Row {i}: "quotes", \\, tab\t, line\n, nul-free \x01, é, 漢, 😀', "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "arguments": [("a", i / 8), ("b", None)]}]},
        {"role": "tool", "content": "" if i % 2 else str(i), "tool_calls": []},
    ][: i % 4]
    for i in range(11)
]
write(
    "messages",
    pa.table({"id": pa.array(range(11)), "messages": pa.array(messages, pa.list_(message))}),
    row_group_size=3,
    compression="snappy",
)

ids = [[(7 * i + k) % 999 for k in range(i % 5)] for i in range(40)]
write(
    "input_ids",
    pa.table(
        {
            "input_ids": pa.array(ids, pa.list_(pa.int32())),
            "labels": pa.array([[-100] * len(row) if i % 3 else None for i, row in enumerate(ids)], pa.large_list(pa.int64())),
            "pair": pa.array([[i, -i] for i in range(40)], pa.list_(pa.int16(), 2)),
        }
    ),
    row_group_size=16,
    compression="zstd",
)

second = datetime.datetime(2024, 2, 29, 23, 59, 58)
write(
    "types",
    pa.table(
        {
            "text": pa.array(["a", None, "c", "a"]).dictionary_encode(),
            "large": pa.array(["x" * 20, "", "y", None], pa.large_string()),
            "flag": pa.array([True, False, None, True]),
            "i8": pa.array([-128, 127, 0, None], pa.int8()),
            "u64": pa.array([2**64 - 1, 0, 1, None], pa.uint64()),
            "i64": pa.array([-(2**63), 2**63 - 1, 0, None], pa.int64()),
            "f32": pa.array([0.1, math.nan, 1e30, 3.0], pa.float32()),
            "f64": pa.array([0.1, -math.inf, 5e-324, 2.0], pa.float64()),
            "scores": pa.array([[1.5, math.nan, None], [], None, [0.25]], pa.list_(pa.float64())),
            "day": pa.array([datetime.date(1969, 12, 31), datetime.date(2000, 2, 29), None, datetime.date(9999, 12, 31)]),
            "local": pa.array([second, second.replace(year=1904, microsecond=250000), None, second], pa.timestamp("us")),
            "instant": pa.array([second.replace(tzinfo=UTC)] * 3 + [None], pa.timestamp("us", tz="Europe/Paris")),
            "nothing": pa.nulls(4),
            "meta": pa.array([[("k", "v"), ("w", None)], [], None, [('"', "q")]], pa.map_(pa.string(), pa.string())),
        }
    ),
    row_group_size=2,
    compression="none",
)

# As datasets.Image() and a list of them are stored.
image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
files = [open(f"{folder}/../images/files/{name}", "rb").read() for name in ("grey.png", "point.jpg", "bits2.png")]
pictures = [{"bytes": files[0], "path": "grey.png"}, {"bytes": files[1], "path": None}, {"bytes": None, "path": "point.jpg"}]
turns = [[{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "2"}]] * 4
write(
    "images",
    pa.table(
        {
            "messages": turns,
            "images": pa.array([pictures[:2], [], None, [pictures[2], {"bytes": files[2][:4], "path": None}]], pa.list_(image)),
            "picture": pa.array([None, pictures[0], pictures[2], {"bytes": b"", "path": None}], image),
            "large": pa.array([None, {"bytes": b"a"}, {"bytes": b"ab"}, {"bytes": b"abc"}], pa.struct([("bytes", pa.large_binary())])),
        }
    ),
    row_group_size=3,
)

write(
    "bytes",
    pa.table(
        {
            "messages": turns,
            "image": pa.array([files[0], None, files[1], b""], pa.binary()),
            "images": pa.array([[files[0], files[2]], [], None, [None]], pa.list_(pa.large_binary())),
            "text": pa.array(["naïve".encode(), b'"', None, b"\xff"], pa.binary()),
            "nested": pa.array([{"data": files[1]}, {"data": b"a"}, {"data": None}, None]),
        }
    ),
    row_group_size=3,
)
write("decimals", pa.table({"price": pa.array([decimal.Decimal("1.5")])}), golden=False)
write("keys", pa.table({"meta": pa.array([[(1, "v")]], pa.map_(pa.int32(), pa.string()))}), golden=False)
write("late", pa.table({"when": pa.array([0, 2**60], pa.timestamp("ms"))}), golden=False)
