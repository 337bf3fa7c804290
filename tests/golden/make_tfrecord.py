#!/usr/bin/env python3
"""Writes tests/golden/tfrecord/: tiny TFRecord files, and the rows that temper reads from them as JSON lines.

    python tests/golden/make_tfrecord.py tests/golden/tfrecord [tests/fuzz/seeds/tables]      (tfrecord 1.14)

rows.*      what the format allows: written by the encoder below, plain, with gzip, and as a zlib stream
package.*   what the package tfrecord writes
The second folder gets a seed for tests/fuzz/tables_fuzz.cpp.
"""
import base64
import gzip
import json
import math
import pathlib
import struct
import sys
import zlib

import crc32c
import tfrecord

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """A field of a message: bytes, or a number as a varint."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def feature(kind, values, packed=True):
    """Of kind "bytes", "float" or "int64"."""
    if kind == "bytes":
        return field(1, b"".join(field(1, value) for value in values))
    if kind == "float":
        data = [struct.pack("<f", value) for value in values]
        each = b"".join(varint(1 << 3 | 5) + value for value in data)
        return field(2, field(1, b"".join(data)) if packed else each)
    each = b"".join(field(1, value) for value in values)
    return field(3, field(1, b"".join(varint(value) for value in values)) if packed else each)


def entry(name, value):
    return field(1, field(1, name.encode()) + field(2, value))


def record(data):
    def masked(text):
        crc = crc32c.crc32c(text)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


JPEG = b"\xff\xd8\xff\xe0 not UTF-8"
features = [
    ({"prompt": feature("bytes", ["Is 91 prime? \u00e9\n".encode()]), "completion": feature("bytes", [b"No"]),
      "id": feature("int64", [-7])},
     {"prompt": "Is 91 prime? \u00e9\n", "completion": "No", "id": -7}),
    ({"input_ids": feature("int64", [1, 2, 300, -4, 2**62]), "labels": feature("int64", [-100, 5], packed=False),
      "score": feature("float", [0.1]), "weights": feature("float", [1.0, -2.5, 1e-30], packed=False)},
     {"input_ids": [1, 2, 300, -4, 2**62], "labels": [-100, 5], "score": 0.1, "weights": [1.0, -2.5, 1e-30]}),
    ({"texts": feature("bytes", [b"a", b"", b"c"]), "empty": feature("bytes", [b""]), "none": feature("int64", []),
      "unset": b"", "image/encoded": feature("bytes", [JPEG]), "images": feature("bytes", [JPEG, b"text"]),
      "odd": feature("float", [math.nan, math.inf, 3.0])},
     {"texts": ["a", "", "c"], "empty": "", "image/encoded": {"bytes": base64.b64encode(JPEG).decode()},
      "images": [{"bytes": base64.b64encode(JPEG).decode()}, "text"], "odd": [None, None, 3.0]}),
    # Of a oneof and of a map's key the last one counts; fields that are not known are passed over.
    ({"both": feature("bytes", [b"x"]) + feature("int64", [4]) + field(9, b"later"),
      "twice": feature("int64", [1]) + feature("int64", [2])},
     {"both": 4, "twice": [1, 2]}),
]
records = [field(1, b"".join(entry(name, value) for name, value in one.items())) for one, _ in features]
rows = [row for _, row in features]
again = field(1, entry("n", feature("int64", [1])) + entry("n", feature("int64", [2])))
records.append(again + field(1, entry("m", feature("bytes", [b"merged"]))))
rows.append({"n": 2, "m": "merged"})
turns = field(1, feature("bytes", [b"one"])) + field(1, feature("bytes", [b"two", b"three"])) + field(1, b"")
records.append(field(1, entry("id", feature("int64", [3]))) + field(2, entry("turns", turns) + entry("no", b"")))
rows.append({"id": 3, "turns": ["one", ["two", "three"], None], "no": []})
records.append(field(1, b""))
rows.append({})


def write_lines(name, lines):
    text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n" for line in lines)
    (folder / name).write_text(text)


plain = b"".join(map(record, records))
(folder / "rows.tfrecord").write_bytes(plain)
(folder / "rows.tfrecord.gz").write_bytes(gzip.compress(plain[:200], mtime=0) + gzip.compress(plain[200:], mtime=0))
(folder / "zlib.tfrecord-00000-of-00001").write_bytes(zlib.compress(plain))
write_lines("rows.jsonl", rows)

writer = tfrecord.TFRecordWriter(str(folder / "package.tfrecords"))
own = [{"text": f"row {i}", "ids": list(range(i + 1)), "score": [i / 4, 0.5], "one": i} for i in range(5)]
for row in own:
    writer.write({"text": (row["text"].encode(), "byte"), "ids": (row["ids"], "int"), "score": (row["score"], "float"),
                  "one": (row["one"], "int")})
writer.close()
own[0]["ids"] = 0  # a single value is no list
write_lines("package.jsonl", own)
if len(sys.argv) > 2:
    (pathlib.Path(sys.argv[2]) / "tfrecord").write_bytes(b"\4" + plain)
