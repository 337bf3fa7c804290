"""Writes tests/golden/run.wandb: an offline run as W&B's own log writer and messages give it.

Needs wandb 0.16.6 (the last versions whose writer is Python) with protobuf < 5. Checks that its reader finds in it what was meant.
"""
import os
import sys

import wandb
from wandb.proto import wandb_internal_pb2 as pb

wandb._assert_is_internal_process = True
from wandb.sdk.internal.datastore import LEVELDBLOG_BLOCK_LEN, DataStore

target = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "run.wandb")


def history(number, step, values):
    items = [pb.HistoryItem(key=key, value_json=value) for key, value in [*values, ("_step", str(step))]]
    return pb.Record(num=number, history=pb.HistoryRecord(item=items, step=pb.HistoryStep(num=step)))


run = pb.RunRecord(run_id="abcd1234", project="temper", entity="us", display_name="x", host="here")
for key, value in [("seed", "0"), ("optimizer", '{"learning_rate":2e-05}')]:
    run.config.update.add(key=key, value_json=value)
run.start_time.seconds, run.start_time.nanos = 1700000000, 250000000
records = [
    pb.Record(num=1, header=pb.HeaderRecord()),
    pb.Record(num=2, run=run),
    history(3, 0, [("loss", "0.5"), ("x/y", "NaN")]),
    history(4, 1, [("note", '"' + "a" * 70000 + '"')]),  # over three blocks
]
if os.path.exists(target):
    os.remove(target)
store = DataStore()
store.open_for_write(target)
for record in records:
    store.write(record)
# Records that leave 7 bytes of a block (the next begins with an empty frame) and 3 (it begins in the next block).
for left in (7, 3):
    number = len(records) + 1
    room = LEVELDBLOG_BLOCK_LEN - store._index % LEVELDBLOG_BLOCK_LEN - left - 7
    size = room
    while history(number, number, [("note", "b" * size)]).ByteSize() > room:
        size -= 1
    filler = history(number, number, [("note", "b" * size)])
    assert filler.ByteSize() == room, (filler.ByteSize(), room)
    store.write(filler)
    print("filler", size)
    assert LEVELDBLOG_BLOCK_LEN - store._index % LEVELDBLOG_BLOCK_LEN == left
    records += [filler, history(number + 1, number + 1, [("loss", "1")])]
    store.write(records[-1])
number = len(records) + 1
records += [pb.Record(num=number, summary=pb.SummaryRecord(update=[pb.SummaryItem(key="loss", value_json="1")])),
            pb.Record(num=number + 1, exit=pb.RunExitRecord(runtime=12))]
for record in records[-2:]:
    store.write(record)
store.close()

reader = DataStore()
reader.open_for_scan(target)
for record in records:
    read = pb.Record()
    read.ParseFromString(reader.scan_data())
    assert read == record
assert reader.scan_data() is None
print(len(records), "records", os.path.getsize(target), "bytes")
