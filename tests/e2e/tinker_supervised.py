"""The cookbook's own supervised loop against a server: tinker_supervised.py MODEL ADDRESS ROWS BATCH OUT, with TINKER_API_KEY set.

ROWS has {"input_ids", "labels"}. A datum's weights are 1 / N where the label is trained, N the number of such labels in
the batch: a step's loss is then the mean that `temper sft` logs. OUT gets a row of metrics for each step.
"""
import asyncio
import json
import sys
import tempfile

import chz
import numpy as np
import tinker
from tinker_cookbook.supervised import train
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder

model, address, path, batch, out = sys.argv[1:]
rows = [json.loads(line) for line in open(path)]
batch = int(batch)


def trained(row):
    return [label != -100 for label in row["labels"][1:]]


class Rows(SupervisedDataset):
    def get_batch(self, index):
        chosen = rows[index * batch:(index + 1) * batch]
        share = np.float32(1 / sum(sum(trained(row)) for row in chosen))
        return [tinker.Datum(model_input=tinker.ModelInput.from_ints(row["input_ids"][:-1]),
                             loss_fn_inputs={"target_tokens": np.array(row["input_ids"][1:]), "weights": np.array(trained(row), np.float32) * share}) for row in chosen]

    def __len__(self): return len(rows) // batch
    def set_epoch(self, seed=0): pass


@chz.chz
class Builder(SupervisedDatasetBuilder):
    def __call__(self): return Rows(), None


# The loop logs its own mean in float32; the server's sum, in float64, is what is compared. Of weights that float32 rounds
# it is the mean times their sum.
losses = []
send = tinker.TrainingClient.forward_backward_async


async def recorded(self, data, *more, **options):
    future = await send(self, data, *more, **options)
    result, total = future.result_async, sum(float(w) for datum in data for w in datum.loss_fn_inputs["weights"].data)

    async def noted(*more, **options):
        answer = await result(*more, **options)
        losses.append(answer.metrics["loss:sum"] / total)
        return answer

    future.result_async = noted
    return future


tinker.TrainingClient.forward_backward_async = recorded
logs = tempfile.mkdtemp()
asyncio.run(train.main(train.Config(log_path=logs, model_name=model, base_url=address, renderer_name="role_colon", recipe_name="test", dataset_builder=Builder(),
                                    learning_rate=1e-3, lora_rank=8, save_every=0, eval_every=0)))
logged = [row for row in map(json.loads, open(logs + "/metrics.jsonl")) if "train_mean_nll" in row]
assert len(logged) == len(losses) == len(rows) // batch, (len(logged), len(losses))
with open(out, "w") as file:
    for step, (row, loss) in enumerate(zip(logged, losses), 1):
        file.write(json.dumps({"step": step, "loss": loss, "logged": row["train_mean_nll"], "learning_rate": row["learning_rate"], "grad_norm": row["grad_norm"]}) + "\n")
