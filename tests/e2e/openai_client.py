"""The openai package as a client of `temper serve`: openai_client.py ADDRESS. Exit status 1 where an answer is wrong, 77 where the package is not
installed. The model's weights are random: what is looked at is the form of answers. Its tokens are bytes, among others, so that texts of tokens
may be parts of characters."""
import json
import sys

try:
    import openai
except ImportError:
    print("the Python package openai is not installed")
    sys.exit(77)

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="secret", max_retries=0)
SUM = "12+34="
MESSAGES = [{"role": "user", "content": SUM}]
bad = 0


def expect(condition, *what):
    global bad
    if not condition:
        print("FAILED:", *what, file=sys.stderr)
        bad = 1


def refused(kind, **asked):
    try:
        client.chat.completions.create(model="model", messages=MESSAGES, **asked)
        expect(False, "not refused", asked)
    except kind as e:
        expect(e.body["message"], e)


def completions():
    expect([m.id for m in client.models.list().data] == ["model"], "models")
    greedy = client.completions.create(model="model", prompt=SUM, max_tokens=8, temperature=0, logprobs=3)
    choice = greedy.choices[0]
    logprobs = choice.logprobs
    expect(len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == greedy.usage.completion_tokens,
           greedy)
    expect(all(1 <= len(top) <= 3 and max(top.values()) == logp for logp, top in zip(logprobs.token_logprobs, logprobs.top_logprobs)), logprobs)
    echoed = client.completions.create(model="model", prompt=SUM, max_tokens=8, temperature=0, logprobs=3, echo=True).choices[0]
    prompt = len(echoed.logprobs.tokens) - len(logprobs.tokens)
    expect(echoed.text == SUM + choice.text and prompt == greedy.usage.prompt_tokens > 1, echoed)
    expect(echoed.logprobs.token_logprobs[0] is None and echoed.logprobs.top_logprobs[0] is None, echoed)
    expect(echoed.logprobs.token_logprobs[prompt:] == logprobs.token_logprobs and all(x < 0 for x in echoed.logprobs.token_logprobs[1:prompt]), echoed)
    pairs = list(zip(echoed.logprobs.text_offset, echoed.logprobs.tokens))[:prompt]
    expect(all(echoed.text[at:at + len(token)] == token for at, token in pairs) and echoed.logprobs.text_offset[prompt] == len(SUM), echoed)
    alone = client.completions.create(model="model", prompt=SUM, max_tokens=0, logprobs=1, echo=True)
    expect(alone.choices[0].text == SUM and alone.usage.completion_tokens == 0, alone)
    expect(alone.choices[0].logprobs.token_logprobs == echoed.logprobs.token_logprobs[:prompt], alone)
    text = "".join(c.choices[0].text for c in client.completions.create(model="model", prompt=SUM, max_tokens=8, temperature=0, echo=True, stream=True))
    expect(text == SUM + choice.text, "streamed echo", text)
    two = client.completions.create(model="model", prompt=[SUM, "1+1="], n=2, max_tokens=4, seed=3)
    expect([c.index for c in two.choices] == [0, 1, 2, 3], two)
    same = [client.completions.create(model="model", prompt=SUM, max_tokens=6, seed=5, presence_penalty=p, frequency_penalty=f, logit_bias=b).choices[0].text
            for p, f, b in [(0, 0, {}), (2, 2, {}), (0, 0, {"30": 100})]]
    expect(len(set(same)) == 3, "penalties and bias change nothing", same)


def chats():
    asked = dict(model="model", messages=MESSAGES, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
    whole = client.chat.completions.create(**asked).choices[0]
    tokens = whole.logprobs.content
    expect(all(len(t.top_logprobs) == 2 and t.top_logprobs[0].bytes == t.bytes and t.top_logprobs[0].logprob == t.logprob for t in tokens), whole)
    expect(bytes(b for t in tokens for b in t.bytes).decode(errors="replace") == whole.message.content, whole)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    expect("".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.message.content, chunks)
    streamed = [t for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    expect(streamed == whole.logprobs.content and chunks[-1].usage.completion_tokens == len(streamed), streamed)


def structure():
    schema = {"type": "object", "properties": {"a": {"enum": [1, 23]}, "b": {"type": "array", "items": {"enum": [4]}, "maxItems": 2}}, "required": ["a", "b"]}
    for seed in range(4):
        answer = client.chat.completions.create(model="model", messages=MESSAGES, max_tokens=200, seed=seed, temperature=2,
                                                response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}).choices[0]
        expect(answer.finish_reason == "stop" and json.loads(answer.message.content)["a"] in (1, 23), answer)
        text = client.completions.create(model="model", prompt=SUM, max_tokens=20, seed=seed, extra_body={"structured_outputs": {"regex": "[0-9]{3}\\+1="}}).choices[0]
        expect(len(text.text) == 6 and text.text.endswith("+1=") and text.finish_reason == "stop", text)
        text = client.completions.create(model="model", prompt=SUM, max_tokens=20, seed=seed, extra_body={"guided_choice": ["1+1", "22"]}).choices[0]
        expect(text.text in ("1+1", "22"), text)
    refused(openai.BadRequestError, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "nonsense"}}})
    refused(openai.BadRequestError, extra_body={"guided_regex": "("})
    refused(openai.BadRequestError, extra_body={"guided_regex": "a", "structured_outputs": {"regex": "b"}})


def calls():
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}}}]
    asked = dict(model="model", messages=MESSAGES, max_tokens=200, tools=tools, seed=1, temperature=2)
    for stream in (False, True):
        answer = client.chat.completions.create(**asked, tool_choice={"type": "function", "function": {"name": "add"}}, stream=stream)
        if stream:
            chunks = list(answer)
            found = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
            expect(not any(c.choices[0].delta.content for c in chunks) and chunks[-1].choices[0].finish_reason == "tool_calls", chunks)
        else:
            found = answer.choices[0].message.tool_calls
            expect(answer.choices[0].finish_reason == "tool_calls" and answer.choices[0].message.content is None, answer)
        expect(len(found) == 1 and found[0].function.name == "add" and json.loads(found[0].function.arguments)["x"] in (1, 2), found)
    # Calls of several functions, as the template's notation has them.
    two = [*tools, {"type": "function", "function": {"name": "stop"}}]
    required = client.chat.completions.create(**{**asked, "tools": two, "max_tokens": 400}, tool_choice="required").choices[0]
    if required.finish_reason != "length":
        names = [call.function.name for call in required.message.tool_calls]
        expect(names and set(names) <= {"add", "stop"} and required.message.content is None, required)
        for call in required.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            expect(arguments == {} if call.function.name == "stop" else arguments["x"] in (1, 2), call)
    single = client.chat.completions.create(**{**asked, "tools": two, "max_tokens": 400}, tool_choice="required", parallel_tool_calls=False).choices[0]
    expect(single.finish_reason == "length" or len(single.message.tool_calls) == 1, single)
    plain = client.chat.completions.create(**asked, tool_choice="auto").choices[0]
    expect(plain.message.content is not None and not plain.message.tool_calls, plain)
    refused(openai.BadRequestError, tools=tools, tool_choice={"type": "function", "function": {"name": "other"}})
    # A turn that is forced to be a call as Hermes writes it is read as one.
    call = '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'
    hermes = client.chat.completions.create(**{**asked, "stream": False}, extra_body={"guided_choice": [call]}).choices[0]
    if hermes.finish_reason != "length":
        expect(hermes.message.tool_calls and hermes.message.tool_calls[0].function.name == "add", hermes)
    # A malformed call beside a good one stays in the text.
    broken = '<tool_call>{"name": 1}</tool_call>'
    for stream in (False, True):
        both = client.chat.completions.create(**{**asked, "max_tokens": 500, "stream": stream}, extra_body={"guided_choice": ["a" + broken + call]})
        if stream:
            chunks = list(both)
            text = "".join(c.choices[0].delta.content or "" for c in chunks)
            calls = [t for c in chunks for t in c.choices[0].delta.tool_calls or []]
            reason = chunks[-1].choices[0].finish_reason
        else:
            text, calls, reason = both.choices[0].message.content, both.choices[0].message.tool_calls, both.choices[0].finish_reason
        if reason != "length":
            expect(broken in text and text.startswith("a") and len(calls) == 1, text, calls)


for function in (completions, chats, structure, calls):
    function()
sys.exit(bad)
