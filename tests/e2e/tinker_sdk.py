"""The SDK's own calls against a server: tinker_sdk.py MODEL, with TINKER_BASE_URL and TINKER_API_KEY set."""
import sys

import numpy as np
import tinker
from tinker import types


def datum(tokens, **inputs):
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


prompt = types.ModelInput.from_ints([5, 6, 7])
row = datum([1, 2, 3], target_tokens=np.array([2, 3, 4]), weights=np.array([0, 1, 1], dtype=np.float32))
with tinker.ServiceClient(user_metadata={"purpose": "test"}) as service:
    training = service.create_lora_training_client(base_model=sys.argv[1], rank=8, seed=1).result()
    losses = []
    for _ in range(3):
        passed, stepped = training.forward_backward([row, row], "cross_entropy"), training.optim_step(types.AdamParams(learning_rate=1e-2))
        losses.append(passed.result().metrics["loss:sum"])
        stepped.result()
    assert losses[2] < losses[0], losses
    sampling = training.save_weights_and_get_sampling_client().result()
    answer = sampling.sample(prompt, 2, types.SamplingParams(max_tokens=4, seed=3, stop=[]), include_prompt_logprobs=True).result()
    for sequence in answer.sequences:
        tokens = [5, 6, 7] + list(sequence.tokens)
        forward = training.forward([datum(tokens[:-1], target_tokens=np.array(tokens[1:]))], "cross_entropy").result()
        assert list(forward.loss_fn_outputs[0]["logprobs"].data)[2:] == list(sequence.logprobs), "sampled log-probabilities"
        assert sequence.sequence_id
    state, weights = training.save_state("sdk").result(), training.save_weights_for_sampler("sdk").result()
    logprobs = service.create_sampling_client(model_path=weights.path).result().compute_logprobs(prompt).result()
    assert logprobs[0] is None and logprobs == answer.prompt_logprobs, (logprobs, answer.prompt_logprobs)
    loaded = service.create_training_client_from_state_with_optimizer(state.path).result()
    both = [client.forward_backward([row], "cross_entropy").result().metrics["loss:sum"] for client in (training, loaded)]
    assert both[0] == both[1], both
    custom, _ = training.forward_backward_custom([row], lambda data, logprobs: (-logprobs[0].sum(), {})), None
    custom.result()
    try:
        training.forward_backward([row], "stable_reinforce").result()
        raise SystemExit("stable_reinforce was taken")
    except tinker.BadRequestError:
        pass
