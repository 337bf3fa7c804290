"""Writes tests/golden/templates/trained.json: what supervised tuning trains of conversations of several turns, with
reasoning and with tool calls, under each chat template.

Usage: python make_trained_goldens.py tests/golden/templates

For each template and conversation: "mode" (whole: one row; turns: a path for each assistant turn; null: a turn's text
has its generation prompt nowhere), the "targets" (what the template gives after the context when the turn is sampled), and
under the tokenizer ../tokenizers/qwen2.json how many tokens are "trained", how many there are in the paths ("tokens") and
in the tree in which shared beginnings stand once ("computed"). Rendered by transformers, tokenized by tokenizers; nothing
here is Temper's code.
"""

import glob
import json
import os
import sys

import transformers.utils.chat_template_utils as chat_templates
from make_template_goldens import TOKENS, WEATHER, Clock, assistant, call, system, user
from tokenizers import Tokenizer

CONVERSATIONS = {
    "one turn": ([user("What is 2+2?"), assistant("4.")], None),
    "turns": ([system("Be brief."), user("Hi"), assistant("Hello."), user("And you?"), assistant("Fine."), user("Bye"),
               assistant("See you.")], None),
    "reasoning": ([user("Why?"), assistant("So.", reasoning_content="Because."), user("And?"),
                   assistant("Then.", reasoning_content="Hmm.")], None),
    "think": ([user("Why?"), assistant("<think>\nBecause.\n</think>\n\nSo."), user("And?"),
               assistant("<think>\nHmm.\n</think>\n\nThen.")], None),
    "tools": ([system("Use tools."), user("Weather in Zürich?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich"})]),
               {"role": "tool", "name": "get_weather", "content": "{\"t\": 21.5}", "tool_call_id": "abcdefg12"},
               assistant("21.5 °C."), user("And Bern?"),
               assistant("", tool_calls=[call("get_weather", {"city": "Bern"}, "123456789")]),
               {"role": "tool", "name": "get_weather", "content": "{\"t\": 20}", "tool_call_id": "123456789"},
               assistant("20 °C.")], [WEATHER]),
}


def render(template, messages, tools, prompt):
    texts, _ = chat_templates.render_jinja_template(
        [messages], tools=tools, chat_template=template, add_generation_prompt=prompt, **TOKENS)
    return texts[0]


def paths_of(template, messages, tools):
    """The mode, and for each path its text and the ranges that are trained."""
    whole = render(template, messages, tools, False)
    is_whole, paths, spans = True, [], []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        context, text = render(template, messages[:i], tools, True), render(template, messages[: i + 1], tools, False)
        is_whole = is_whole and whole.startswith(context) and whole.startswith(text) and len(context) <= len(text)
        if not text.startswith(context):
            # A target that follows the same generation prompt (or question) in another text.
            before = render(template, messages[:i], tools, False)
            tail = context[len(before):] if context.startswith(before) else ""
            tail = tail or context[-8:]
            at = text.rfind(tail) + len(tail)
            if at < len(tail) or at <= len(os.path.commonprefix([text, context])):
                return None, []
            text = context + text[at:]
        spans.append((len(context), len(text)))
        paths.append((text, [spans[-1]]))
    return ("whole", [(whole, spans)]) if is_whole else ("turns", paths)


def row(template, tokenizer, messages, tools):
    try:
        mode, paths = paths_of(template, messages, tools)
    except Exception:
        return None
    targets = [text[begin:end] for text, spans in paths for begin, end in spans]
    prefixes, trained, tokens = set(), set(), 0
    for text, spans in paths:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        tokens += len(encoding.ids)
        for i, (start, _) in enumerate(encoding.offsets):
            prefixes.add(tuple(encoding.ids[: i + 1]))
            if any(begin <= start < end for begin, end in spans):
                trained.add(tuple(encoding.ids[: i + 1]))
    return {"mode": mode, "targets": targets, "trained": len(trained), "tokens": tokens, "computed": len(prefixes)}


def main(directory):
    chat_templates.datetime = Clock
    with open(os.path.join(directory, "..", "tokenizers", "qwen2.json"), encoding="utf-8") as file:
        config = json.load(file)["tokenizer"]
    config["post_processor"] = None  # it would trim the offsets
    tokenizer = Tokenizer.from_str(json.dumps(config))
    results = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.jinja"))):
        with open(path, encoding="utf-8") as file:
            template = file.read()
        if "generation %}" in template:
            continue  # it says itself what is trained
        rows = {name: row(template, tokenizer, *c) for name, c in CONVERSATIONS.items()}
        results[os.path.basename(path).removesuffix(".jinja")] = {n: r for n, r in rows.items() if r is not None}
    conversations = {name: {"messages": m, "tools": t} for name, (m, t) in CONVERSATIONS.items()}
    with open(os.path.join(directory, "trained.json"), "w", encoding="utf-8") as file:
        json.dump({"conversations": conversations, "results": results}, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    for name, rows in results.items():
        for conversation, r in rows.items():
            print(f"{name:16} {conversation:10} {r['mode'] or 'refused':8} {r['trained']:4} of {r['computed']:4} ({r['tokens']})")


if __name__ == "__main__":
    main(*sys.argv[1:])
