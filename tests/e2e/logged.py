"""What the metrics sinks of two runs hold: python3 logged.py RUN RUN. Fails where they differ, times and memory aside.

A directory of event files is read twice, as TensorBoard reads it, which forgets the steps that a session starts at or
before, and as it stands.
"""
import csv
import json
import pathlib
import struct
import sys

TIMES = ("step_seconds", "tokens_per_second", "peak_memory_bytes", "_timestamp", "_runtime", "rollout_seconds", "rollout_latency_p50", "rollout_latency_p95")


def counts(name):
    return name.split("/")[-1] not in TIMES


def fields(message):
    """(field number, wire type, value) of a protocol buffer."""
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value, at = message[at:at + size], at + size
        yield key >> 3, kind, value


def events(directory):
    for path in sorted(pathlib.Path(directory).glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at + 12 <= len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            assert at + 16 + size <= len(data), f"{path}: a record is cut"
            yield list(fields(data[at + 12:at + 12 + size]))
            at += 16 + size


def tensorboard(directory, forgets):
    points = []  # (step, tag, value)
    for event in events(directory):
        step = next((value for number, _, value in event if number == 2), 0)
        for number, _, value in event:
            if number == 7 and forgets:
                points = [p for p in points if p[0] < step]
            if number == 5:
                for _, _, summary in fields(value):
                    part = {n: v for n, _, v in fields(summary)}
                    points.append((step, part[1].decode(), struct.unpack("<f", part[2])[0]))
    return sorted(p for p in points if counts(p[1]))


def wandb(directory):
    (path,) = pathlib.Path(directory).glob("offline-run-*/*.wandb")
    data, at, part, records = path.read_bytes(), 7, b"", []
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        part += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            records.append(part)
            part = b""
    rows = []
    for record in records:
        for number, kind, value in fields(record):
            if number in (2, 3):  # history, summary
                items = {}
                for n, _, item in fields(value):
                    if n == 1:
                        item = {k: v for k, _, v in fields(item)}
                        items[item[1].decode()] = item[16].decode()
                rows.append((number, sorted(i for i in items.items() if counts(i[0]))))
    return rows


def table(path):
    with open(path) as file:
        return [sorted((k, v) for k, v in row.items() if counts(k)) for row in csv.DictReader(file)]


def read(run):
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    prom = [line.replace(f'"{run}"', '""') for line in open(f"{run}/metrics.prom") if not line.startswith("#")]
    return {"metrics.jsonl": [{k: v for k, v in line.items() if counts(k)} for line in lines],
            "metrics.csv": table(f"{run}/metrics.csv"), "eval.csv": table(f"{run}/eval.csv"),
            "metrics.prom": [line for line in prom if not any(time in line for time in TIMES)],
            "tensorboard/": tensorboard(f"{run}/tensorboard", True),
            "tensorboard/ as it stands": tensorboard(f"{run}/tensorboard", False), "wandb/": wandb(f"{run}/wandb")}


if __name__ == "__main__":
    one, other = read(sys.argv[1]), read(sys.argv[2])
    assert one["tensorboard/"] and len(one["wandb/"]) > 2
    bad = [name for name in one if one[name] != other[name]]
    for name in bad:
        print(f"{name}: {len(one[name])} and {len(other[name])}")
        print(*[x for x in other[name] if x not in one[name]][:3], *[x for x in one[name] if x not in other[name]][:3], sep="\n")
    sys.exit(bool(bad))
