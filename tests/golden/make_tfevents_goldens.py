"""Writes tests/golden/tfevents.bin: four records as TensorBoard's own writer and messages give them.

Needs tensorboard (2.21). Checks that its reader finds in them what was meant.
"""
import io
import os
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class Buffer(io.BytesIO):
    def close(self):
        pass


def scalars(wall_time, step, values):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values])
    return Event(wall_time=wall_time, step=step, summary=summary)


events = [
    Event(wall_time=1700000000.25, file_version="brain.Event:2"),
    Event(wall_time=1700000001.5, step=0, session_log=SessionLog(status=SessionLog.START)),
    scalars(1700000002.0, 1, [("train/loss", 2.5), ("train/learning_rate", 2e-5)]),
    scalars(1700000003.0, 300, [("eval/loss", 0.1)]),
]
buffer = Buffer()
writer = RecordWriter(buffer)
for event in events:
    writer.write(event.SerializeToString())
writer.flush()
target = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "tfevents.bin")
with open(target, "wb") as file:
    file.write(buffer.getvalue())

with tempfile.TemporaryDirectory() as directory:
    with open(os.path.join(directory, "events.out.tfevents.1"), "wb") as file:
        file.write(buffer.getvalue())
    reader = EventAccumulator(directory)
    reader.Reload()
    assert [(e.step, e.value) for e in reader.Scalars("train/loss")] == [(1, 2.5)]
    assert [e.step for e in reader.Scalars("eval/loss")] == [300]
