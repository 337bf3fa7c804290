"""Writes tests/golden/templates/{chats,expressions,labels,parts}.json: what transformers and jinja2 render.

Usage: python make_template_goldens.py OUTPUT_DIRECTORY [QWEN2_CHAT_TEMPLATE]

The templates are OUTPUT_DIRECTORY/*.jinja, shaped like those of the models they are named after; `qwen2` is read from the
second argument. chats.json: conversations, and for each template and conversation the text that apply_chat_template
gives ("text"; null: it raises), what add_generation_prompt appends ("prompt"; a whole text under "prompted" where it does
not append), and the byte ranges of generation blocks ("spans"). expressions.json: [template, result or null] pairs under
one context. labels.json: for tokenizers of ../tokenizers, templates and conversations, the runs [begin, end) of trained
tokens, from the offsets that Hugging Face's tokenizers gives (null: no beginning of the conversation renders so).
parts.json: conversations with lists of text parts, and for each template what it writes of them ("text", "prompt", and the
trained runs by tokenizer): of the lists where it writes all their texts ("reads"), else of the joined texts.
"""

import datetime
import glob
import json
import os
import sys

import transformers.utils.chat_template_utils as chat_templates
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Clock(datetime.datetime):
    """2024-07-26 13:05:09, a Friday, whenever asked."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 13, 5, 9)


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather of a place.\nIn °C.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit", "default": "celsius"},
        "days": {"type": "integer", "description": "<Days> & 'nights'", "default": 1}}, "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "search the web",
    "parameters": {"type": "object", "properties": {
        "queries": {"type": "array", "items": {"type": "string"}, "description": "what to look for"},
        "limit": {"type": ["integer", "null"], "description": ""},
        "options": {"type": "object", "additionalProperties": {"type": "number"}, "description": "more",
                    "properties": {"safe": {"type": "boolean"}, "score": {"type": "number"}}, "required": ["safe"]}},
        "required": ["queries", "options"]}}}
PING = {"type": "function", "function": {"name": "ping", "description": "Nothing", "parameters": {
    "type": "object", "properties": {}, "required": []}}}


def call(name, arguments, identity="abcdefg12"):
    return {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


CONVERSATIONS = {
    "one": ([user("Hello!")], None),
    "turn": ([user("What is 2+2?"), assistant("4.")], None),
    "system": ([system("Be brief."), user("Hi"), assistant(" Hello. \n"), user("  Bye\n")], None),
    "unicode": ([user("Grüße 你好 🙂\u200d <b>&amp;</b> \"q\" 'a' \\n {{ x }} {% y %}"), assistant("É — ok\u2028next"),
                 user("\ttab\n\n\nlines\n")], None),
    "empty": ([user(""), assistant("")], None),
    "think": ([user("Why?"), assistant("<think>\nBecause.\n</think>\n\nSo."), user("And?"),
               assistant("Then.", reasoning_content="Hmm.\n")], None),
    "reasoning": ([user("Why?"), assistant("So.", thinking="deep")], None),
    "parts": ([system([{"type": "text", "text": "Sys."}]), user([{"type": "text", "text": " Look: "}, {"type": "image"},
              {"type": "text", "text": "what?"}]), assistant([{"type": "text", "text": "A cat."}])], None),
    "assistant_first": ([assistant("I begin."), user("ok")], None),
    "two_users": ([user("a"), user("b"), assistant("c")], None),
    "tools": ([system("Use tools."), user("Weather?")], [WEATHER, SEARCH, PING]),
    "tool_call": ([user("Weather in Zürich?"), assistant(None, tool_calls=[call("get_weather", {
        "city": "Zürich", "days": 2, "nested": {"a": [1, 2.5, None, True], "b": {"c": "x\"y"}}, "big": 1e22})]),
        {"role": "tool", "name": "get_weather", "content": "{\"t\": 21.5}", "tool_call_id": "abcdefg12"},
        assistant("21.5 °C."), user("Thanks")], [WEATHER]),
    "tool_calls": ([user("Both?"), assistant("Let me see.", tool_calls=[call("search", {"queries": ["a", "b"], "options": {}}),
                    call("ping", {}, "123456789")]),
                    {"role": "tool", "content": "one", "tool_call_id": "abcdefg12"},
                    {"role": "tool", "content": {"content": ["two", 2]}, "tool_call_id": "123456789"},
                    assistant("Done.")], [SEARCH, PING]),
    "string_arguments": ([user("Go"), assistant("", tool_calls=[call("ping", "{\"x\": 1}", "short")])], None),
    "long": ([system("S")] + [m for i in range(7) for m in (user(f"q{i}"), assistant(f"a{i}" * i))], None),
    "names": ([user("hi", name="Ann"), assistant("ho", name="Bob", extra={"k": [1, {"z": None}], "a": 0.1}),
               {"role": "custom", "content": "?"}], None),
    "numbers": ([user(42), assistant(3.0)], None),
    "edges": ([user("a"), assistant("\n\nb\n"), user(" c\n"), assistant(" d e\u0301\u0302 \U0001f642  \n"), user("\u0301x"),
               assistant("\u4f60\u597d")], None),
}



def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


# Messages of one role have lists, so that a template reads all lists of a conversation or none.
PART_CONVERSATIONS = {
    "user": ([user(parts("What is", " 2+2?")), assistant("4."), user(parts(" And\n", "\n3+3? "))], None),
    "user_one": ([user(parts(" Hello! ")), assistant("Hi.")], None),
    "assistant": ([user("Count."), assistant(parts("One, ", "two,", " three.")), user("On."), assistant(parts("Four."))], None),
    "system": ([system(parts("Be brief.", " Be kind.")), user("Hi"), assistant("Ho")], None),
    "tool": ([user("Ping?"), assistant("", tool_calls=[call("ping", {})]),
              {"role": "tool", "name": "ping", "content": parts("quer ", "tz"), "tool_call_id": "abcdefg12"}, assistant("Pong.")], [PING]),
}

EXPRESSIONS = [
    # numbers and their text
    "1", "-7", "0x1F", "0b101", "0o17", "1_000", "1.0", "1e3", "1.5e-7", "1e16", "1e15", "123456789012345680.0", "0.1+0.2",
    "1/3", "4/2", "1/2731", "-13038/1622238", "38006/-19079", "9223372036854775807/3", "-9223372036854775807/7", "0/-3", "10103/155840", "7//2", "-7//2", "7%3", "-7%3", "7%-3", "7.5//2", "-7.5%2", "2**10", "2**-1", "2**0.5", "-2**2", "2**3**2",
    "1/0", "1//0", "1%0", "10**18", "1.0/0", "true+true", "true*3", "-true", "+true", "3 - -3", "1+2*3", "(1+2)*3", "1.0==1", "1e400", "-1e400",
    "9007199254740993 == 9007199254740992.0", "5 // 0.3", "0.1*3", "100000000000000000000.0", "1.7976931348623157e308", "5e-324",
    # strings
    "'a' 'b' \"c\"", "'\\n\\t\\\\\\'\\x41\\u00e9\\U0001F600\\101'", "'\\é\\q'", "'a'+'b'", "'a'*3", "3*'ab'", "'a'*-1", "'a'+1", "1+'a'", "'a'~1~none~true~1.0~[1]",
    "'%s-%d-%.2f-%5s|%-5s|%05d|%x|%%'|format('a', 3, 2.5, 'b', 'c', 42, 255)", "'%(a)s %(b)r'|format(a=1, b='x')", "'%s' % 'a'", "'%s %s' % ('a', 1)", "'%d' % 'a'",
    "'%s' % (1, 2)", "'%r' % ['a']", "'{} {}'.format(1, 'a')", "'{1} {0} {a}'.format(1, 2, a='k')", "'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{!r}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 'q')",
    "'{0[k]} {0.k}'.format({'k': 1})", "'{'.format()", "'{}'.format()", "'{{}}'.format()", "'abc'[0]", "'abc'[-1]", "'abc'[5]", "'héllo'[1]", "'héllo'[1:3]", "'abc'[::-1]", "'abcdef'[4:1:-1]", "'abcdef'[::2]", "'abc'[::0]",
    "'abc'|length", "'héé'|length", "'a' < 'b'", "'a' < 1", "'a' == 1", "'b' in 'abc'", "1 in 'abc'", "'' in 'abc'", "'a' not in 'abc'",
    "'  x '.strip()", "'xxaxx'.strip('x')", "'xxaxx'.lstrip('x')", "'xxaxx'.rstrip('x')", "'a,b,,c'.split(',')", "'a b  c'.split()", "'a,b,c'.split(',', 1)", "'a,b,c'.rsplit(',', 1)", "' a  b '.split(None, 1)", "'a b c'.rsplit(None, 1)", "'a'.split('')",
    "'a\\nb\\r\\nc\\n'.splitlines()", "'a\\nb'.splitlines(true)", "'abc'.startswith('a')", "'abc'.startswith(('x','a'))", "'abc'.endswith('bc')", "'abc'.startswith('b', 1)", "'abc'.startswith(1)", "'Abc'.upper()", "'ABC'.lower()",
    "'hello wORLD it\\'s'.title()", "'hello wORLD'.capitalize()", "'straße'.upper()", "'aXbX'.replace('X','-')", "'aXbX'.replace('X','-',1)", "'abc'.replace('','-')", "'abcabc'.find('c')", "'abcabc'.rfind('c')", "'abc'.find('z')", "'abc'.index('z')", "'abcabc'.index('b', 2)",
    "'banana'.count('an')", "'aaa'.count('')", "','.join(['a','b'])", "','.join([1])", "','.join('abc')", "'123'.isdigit()", "''.isdigit()", "'ab'.isalpha()", "'a1'.isalnum()", "' '.isspace()", "'Ab'.isupper()", "'AB1'.isupper()", "'ab'.islower()",
    "'42'.zfill(5)", "'-42'.zfill(5)", "'a'.ljust(3)~'|'", "'a'.rjust(3,'.')", "'a'.center(4,'*')", "'ab'.center(5,'*')", "'a-b-c'.partition('-')", "'a-b-c'.rpartition('-')", "'abc'.removeprefix('a')", "'abc'.removesuffix('c')", "'aBc'.swapcase()", "'abc'.foo", "'abc'.foo.bar", "'abc'.foo()", "'a'.upper", "'x'.__class__",
    "'a\\tb\\x00\\u200b\\u00e9\\u00a0'|list", "['it\\'s', 'say \"x\"', 'both \\'\"']", "'a'|upper|lower|title", "'hello-world foo(bar'|title", "'hELLO'|capitalize", "'  x '|trim", "'xax'|trim('x')", "5|upper", "none|upper", "undefined_thing|upper", "'a b_c-d é'|wordcount", "'a/b c?d=é&'|urlencode", "{'a b': 1, 'c': 'é/'}|urlencode",
    "'a\\nb\\n\\nc'|indent", "'a\\nb\\n\\nc'|indent(2, true)", "'a\\nb\\n\\nc'|indent(2, blank=true)", "'a\\nb'|indent(width='>>')", "'a\\n'|indent", "5|indent", "'abc'|replace('b','x')", "'aaa'|replace('a','b',2)", "123|replace(2,'x')", "'a'|center(5)~'|'", "'foo bar baz qux'|truncate(9)", "'foo bar baz qux'|truncate(11, false, '...', 0)",
    "'<a href=\"x\">&\\'</a>'|escape", "'<b>'|e|e", "'<b>'|safe", "('<b>'|safe) ~ '<i>'", "('<b>'|safe) + '<i>'", "'<i>' + ('<b>'|safe)", "('<b>'|safe)|list", "('a<b'|safe).replace('a','<')", "'a'|string", "1.5|string", "none|string",
    # containers
    "[]", "[1, 'a', none, true, 1.5, [2], {'k': 'v'}, (1,), ()]", "(1, 2)", "1, 2", "()", "{}", "{'a': 1, 2: 'b', none: [1]}", "{'a': 1, 'a': 2}", "{1: 'a', true: 'b', 1.0: 'c'}", "{[1]: 2}", "[1,2]+[3]", "[1]*3", "(1,)+(2,)", "[1]+(2,)", "[1,2,3][1:]", "[1,2,3][-1]", "[1,2,3][10]", "[1,2,3]['a']", "[1,2,3][::-1]", "[1,2,3][none:2]", "d.a", "d['a']", "d.missing", "d.missing.x", "d['missing']['x']",
    "d.items", "d.items()", "d.keys()", "d.values()", "d|items|list", "d|list", "d|length", "d.get('a')", "d.get('zz')", "d.get('zz', 5)", "d.pop('a')", "d.update({})", "d.setdefault('a')", "d.copy()", "d['items']", "nested.items", "nested['items']", "nested.keys()", "list.append(1)", "list.pop()", "list.index(2)", "list.index(99)", "list.count(1)", "list.foo", "list.0", "nested.x.1.y", "list|first", "list|last", "[]|first", "[]|last", "[]|first|upper", "list|length", "5|length", "none|length", "undefined_thing|length",
    "list|join(', ')", "list|join", "'abc'|join('-')", "none|join", "undefined_thing|join('x')", "people|join(', ', attribute='name')", "list|sum", "['a']|sum", "[[1],[2]]|sum(start=[])", "people|sum(attribute='age')", "list|max", "list|min", "[]|max", "['b','A','c']|min", "people|max(attribute='age')", "[1,'a']|max", "[3,1,2]|sort", "[3,1,2]|sort(reverse=true)", "['b','A','c']|sort", "['b','A','c']|sort(case_sensitive=true)", "[1,'a']|sort", "[none,none]|sort", "[none,1]|sort", "people|sort(attribute='age')|map(attribute='name')|list", "people|sort(attribute='team,name')|map(attribute='name')|list", "[1,2,1,3,2]|unique|list", "['a','A']|unique|list", "[[1]]|unique|list", "list|reverse|list", "'abc'|reverse", "5|reverse", "list|reverse|first", "list|reverse|last", "{'a':1,'b':2}|reverse|list",
    "list|map('string')|join('+')", "['a','b']|map('upper')|list", "people|map(attribute='name')|list", "people|map(attribute='nope')|list", "people|map(attribute='nope', default='-')|list", "people|map(attribute='tags.0', default='-')|list", "list|map('nope')|list", "list|map|list", "[1]|map('default', 5)|list", "['a b']|map('replace', ' ', '_')|list", "list|select('odd')|list", "list|reject('odd')|list", "[0,1,'',none,'a']|select|list", "people|selectattr('age', 'gt', 30)|map(attribute='name')|list", "people|selectattr('team')|list|length", "people|rejectattr('team', 'equalto', 'x')|map(attribute='name')|list", "people|selectattr('nope', 'defined')|list", "people|selectattr('name', 'in', ['Ann'])|list", "list|select('nope')|list", "list|select('odd')|last", "list|select('odd')|length", "list|select('odd')|first", "people|groupby('team')|map('first')|list", "people|groupby('team')|map(attribute='list')|map('length')|list", "people|groupby('nope', default=0)|length",
    "[1,2,3,4,5]|batch(2)|list", "[1,2,3]|batch(2, 0)|list", "[1,2,3,4,5]|slice(2)|list", "[1,2,3]|slice(2, 0)|list", "[1]|slice(0)|list", "{'b':1,'A':2}|dictsort", "{'b':1,'A':2}|dictsort(true)", "{'b':1,'A':2}|dictsort(by='value')", "{'b':1,'A':2}|dictsort(reverse=true)", "5|dictsort", "5|list", "5|items", "5|items|list", "undefined_thing|items|list", "undefined_thing|list", "range(5)|list", "range(2, 8, 3)|list", "range(5, 0, -2)|list", "range(0)", "range(3)", "range(100001)", "range(1, 2, 0)", "range('a')", "range(10)[2]", "range(10)|length", "3 in range(5)", "dict(a=1, b=2)", "dict([('a', 1)])", "dict({'x': 1}, y=2)", "namespace(a=1).a", "namespace(a=1)", "namespace(a=1).b", "namespace(_a=1)", "(people|map(attribute='name'))|tojson",
    # conversion
    "'42'|int", "'42.9'|int", "'abc'|int", "'abc'|int(-1)", "' 7 '|int", "'0x1A'|int(base=16)", "'1_000'|int", "3.99|int", "-3.99|int", "none|int", "true|int", "[]|int(5)", "undefined_thing|int", "'1.5'|float", "'abc'|float", "'abc'|float(1.5)", "'1e3'|float", "'inf'|float", "3|float", "-5|abs", "-5.5|abs", "'a'|abs", "3.5|round", "2.5|round", "2.675|round(2)", "42.55|round(1, 'floor')", "42.45|round(1, 'ceil')", "1234|round(-2)", "5|round", "1.5|round|int", "'a'|round", "3.7|round(method='floor')", "3.7|round(method='nope')", "'a'|default('b')", "undefined_thing|default('b')", "none|default('b')", "none|default('b', true)", "''|d('x', boolean=true)", "undefined_thing|default", "d.missing|default('m')", "d.missing.x|default('m')",
    "d|tojson", "'é\\n\"\\\\/<>&\\''|tojson", "'é😀'|tojson(ensure_ascii=true)", "[1, 2.0, none, true, 'x', {}, [], {'a': []}]|tojson", "[1, {'a': [1, {}], 'b': []}]|tojson(indent=2)", "{'b':1,'a':2}|tojson(sort_keys=true)", "[1,2]|tojson(separators=(',',':'))", "[1,[2]]|tojson(indent=0)", "[1]|tojson(indent='\\t')", "undefined_thing|tojson", "range(3)|tojson", "(1,2)|tojson", "{1: 2, none: 3, true: 4, 1.5: 5}|tojson", "{(1,): 2}|tojson", "1e22|tojson", "0.1|tojson", "'\\x7f\\x01\\u2028'|tojson", "('inf'|float)|tojson", "[1]|tojson(indent=none)", "[1]|tojson(4)", "d|tojson|safe",
    # logic, comparison, tests
    "not true", "not not 1", "1 and 2", "0 and 2", "0 or 'x'", "'' or []", "1 if true else 2", "1 if false", "(1 if false) is undefined", "1 if false else 2 if false else 3", "1 < 2 < 3", "1 < 3 < 2", "1 == 1 == 1", "3 > 2 != 1", "1 in [1,2] and 3 not in [1]", "not 1 in [2]", "not 1 == 2", "[1] == [1.0]", "(1,) == [1]", "{'a':1,'b':2} == {'b':2,'a':1}", "[1,2] < [1,3]", "[1] < (2,)", "none == none", "none < 1", "undefined_thing == undefined_other", "undefined_thing == none", "undefined_thing < 1", "undefined_thing + 1", "'a' + undefined_thing", "undefined_thing ~ 'x'", "undefined_thing.x", "undefined_thing['x']", "undefined_thing()", "-undefined_thing", "not undefined_thing", "undefined_thing", "[undefined_thing]", "1 in undefined_thing", "1 in 5", "true == 1", "'1' == 1", "none", "true", "False", "None", "True",
    "x is defined", "undefined_thing is defined", "undefined_thing is not defined", "d.a is defined", "d.zz is undefined", "none is none", "1 is none", "'a' is string", "1 is string", "1 is number", "true is number", "true is integer", "1.0 is integer", "1.0 is float", "true is boolean", "1 is true", "true is true", "false is false", "d is mapping", "list is sequence", "'a' is sequence", "d is sequence", "1 is sequence", "list is iterable", "1 is iterable", "undefined_thing is iterable", "undefined_thing is sequence", "range is callable", "1 is callable", "3 is odd", "3 is even", "9 is divisibleby 3", "9 is divisibleby(2)", "1 is in [1,2]", "5 is eq 5", "5 is equalto(5)", "5 is ne 5", "5 is lt 6", "5 is gt 6", "5 is ge 5", "5 is le 5", "5 is sameas 5", "none is sameas none", "'ab' is lower", "'AB' is upper", "1 is nope", "'upper' is filter", "'nope' is filter", "'odd' is test", "'a' is odd", "1 is not none", "not 1 is none", "x is not defined or x", "1 is number and 2 is string", "1 is in([1])",
    # calls, macros of the language, errors
    "raise_exception('boom')", "raise_exception()", "foo()", "d()", "5()", "range()", "'a'.upper(1)", "d|nope", "d.get()", "strftime_now('%Y-%m-%d %H:%M:%S %A %j %b %%')", "strftime_now('')", "strftime_now(5)", "cycler('a','b').next()", "cycler()", "joiner()() ~ 'x'", "[*[1]]", "range(*[1,4])|list", "dict(**{'a': 1})", "'{a}'.format(**{'a': 2})", "d|attr('a')", "d|attr('keys')", "('a' if x else 'b')|upper", "x|string|length", "-x", "-x|abs", "x.y", "d.a.b", "1.5.x", "x|default(1)|string ~ 'z'", "'a' if 0 else 'b' ~ 'c'", "[1,2,3]|length + 1", "d.a + 1 if d.a else 0", "{'a': {'b': [10, 20]}}.a.b[1]", "['a', 'b'][1] ~ ['c'][0]", "{'x': 1,}.x", "[1,2,]", "(1,)", "'a' is string and 'b' or 'c'",
    "1 +", "(1", "[1", "{'a' 1}", "a b", "1 2", "'abc", "a..b", "|upper", "a|", "a is", "{% if %}", "not", "1 if", "a[", "a[1:2:3:4]", "f(a=1, 2)", "f(**a, *b)", "f(a=1, a=2)", "@", "a = 1", "'\\x4'", "'\\ud800'", "1 is none is none", "lambda x: x", "f(,)", "{1, 2}", "08", "1__0",
]

BLOCKS = [
    "", "a\n", "a\n\n", "\r\na\r", "a{# c #}b", "a {#- c -#} b", "a\n{# c #}\nb", "{% set x = 1 %}\n{{ x }}\n", "  {% if true %}\n  a\n  {% endif %}\nb", "  {%+ if true %}a{% endif +%}\nb", "a  {%- if true -%}  b  {%- endif -%}  c", "a\n  {{ 1 }}\n  b", "a {{- 1 -}} b", "{{ 1 }}\n{{ 2 }}\n\n", "{% raw %}{{ x }}{% y %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n  x\n  {% endraw %}\ny", "{% raw %}a", "{# a", "{{ 1", "{% if x", "{% if true %}a", "{% endif %}", "{% nope %}", "{% if true %}{% endfor %}", "{%if true%}x{%endif%}", "{{'}}'}}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {} }}", "{%- -%}", "}}", "%}", "{", "{ {", "a { b } c", "{{ '{%' }}", "{% if true: %}x{% endif %}",
    "{% for i in [1,2,3] %}{{ i }}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in [1] %}x{% else %}none{% endfor %}", "{% for i in list if i is odd %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}", "{% for i in list if i > 100 %}x{% else %}no{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d %}{% endfor %}", "{% for a, b in [(1,2),[3,4],'xy'] %}{{ a }}{{ b }} {% endfor %}", "{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, in [(1,)] %}{{ a }}{% endfor %}", "{% for i in 'héy' %}{{ i }}.{% endfor %}", "{% for i in d %}{{ i }} {% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for i in undefined_thing %}x{% else %}y{% endfor %}", "{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {% endfor %}", "{% for i in [1,2,3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in [1] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.nope }}{% endfor %}", "{% for i in [1,1,2] %}{{ loop.changed(i) }}{{ loop.cycle('a','b') }} {% endfor %}", "{% for i in [1,2] %}{% for j in [3,4] %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% break %}", "{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for i in [1,2] %}{{ i }}{% else %}{% break %}{% endfor %}", "{{ loop }}", "{% for loop in [1] %}{% endfor %}", "{% for i in [1] %}{% set loop = 1 %}{% endfor %}", "{% for i in list|map('string') %}{{ i }}{{ loop.last }}{% endfor %}", "{% for i in list|select('odd') %}{{ loop.length }}{{ i }}{% endfor %}",
    "{% set x = 5 %}{% for i in [1] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% for i in [1,2] %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}", "{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "{% set ns = namespace(n=0) %}{% for i in [1,2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}", "{% set d.x = 1 %}", "{% set ns.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a, b = [1,2,3] %}", "{% set (a, b) = 'xy' %}{{ a }}", "{% set x %}a{{ 1 }}{% endset %}[{{ x }}]", "{% set x | upper | trim %} a {% endset %}[{{ x }}]", "{% set true = 1 %}", "{% set 'a' = 1 %}", "{% set x = 1, 2 %}{{ x }}", "{% set x = %}", "{{ x }}{% set x = 9 %}{{ x }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% print 1, 'a' %}", "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% filter replace('a','x')|trim %} aab {% endfilter %}", "{% filter nope %}a{% endfilter %}",
    "{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=5, a=4) }} {{ f() }}", "{% macro f(a) %}x{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}x{% endmacro %}{{ f(b=2) }}", "{% macro f(a, a) %}x{% endmacro %}", "{% macro f(a=1, b) %}x{% endmacro %}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 'new' %}{{ f() }}", "{% macro f() %}{% set z = 1 %}{% endmacro %}{{ f() }}{{ z }}", "{{ f() }}{% macro f() %}x{% endmacro %}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}body{% endcall %}", "{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b=0) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}body{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "{% macro f(x) %} {{- x -}} {% endmacro %}{{ f('a') | upper }}", "{{ f }}{% macro f() %}{% endmacro %}{{ f }}", "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}", "{% call 5 %}{% endcall %}", "{% call nope() %}{% endcall %}", "{% for i in [1,2] %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}", "{% macro f(caller) %}{{ caller() }}{% endmacro %}", "{% macro f(**k) %}{% endmacro %}", "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}\n[{{ f(1) }}]",
    "a{% generation %}b{{ 1 }}{% endgeneration %}c", "{% for m in ['é', 'b'] %}<{% generation %}{{ m }}{% endgeneration %}>{% endfor %}", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% generation %}a", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('; ') %}{% for i in [1,2] %}{{ j() }}{{ i }}{% endfor %}", "{% set g = list|map('string') %}{{ g|first }}{{ g|list }}", "{% set g = [1, 'a', 2]|map('abs') %}{{ g|first }}", "{% set g = [1, 'a', 2]|map('abs') %}{{ g|first }}{{ g|list }}", "{% if [1,'a']|map('abs') %}x{% endif %}", "{% set ns = namespace(stop=false) %}{% for i in [1,2,3] if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}", "{% for i in [1,2,3] if not ns.stop %}{% endfor %}", "{% if undefined_thing %}a{% elif d.zz %}b{% elif 1 %}c{% else %}d{% endif %}", "{% if %}a{% endif %}", "{% include 'x' %}", "{% for g in people|groupby('team') %}{{ g.grouper }}:{{ g.list|length }}{{ g[0] }} {% endfor %}", "{% for team, members in people|groupby('team') %}{{ team }}{{ members|map(attribute='name')|join }}{% endfor %}", 
]

CONTEXT = {
    "x": 3, "s": "text", "d": {"a": 1, "b": [1, 2], "c": None}, "list": [1, 2, 3, 4], "nested": {"items": [1], "x": [0, {"y": "deep"}]},
    "people": [{"name": "Ann", "age": 30, "team": "x", "tags": ["t"]}, {"name": "bob", "age": 41, "team": "y", "tags": []},
               {"name": "Cid", "age": 35, "team": "x", "tags": ["u", "v"]}],
}


def bytes_of(text, spans):
    return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans]


def render_chat(tokenizer, template, name, prompt):
    messages, tools = CONVERSATIONS[name]
    try:
        return tokenizer.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False, add_generation_prompt=prompt)
    except Exception:
        return None


def chat_spans(template, name):
    messages, tools = CONVERSATIONS[name]
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    (text,), (spans,) = chat_templates.render_jinja_template(
        [messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True, **TOKENS)
    return bytes_of(text, spans)


def chats(templates):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    results = {}
    for name, template in templates.items():
        results[name] = {}
        for conversation in CONVERSATIONS:
            text, prompted = (render_chat(tokenizer, template, conversation, p) for p in (False, True))
            row = {"text": text}
            if text is not None and prompted is not None and prompted.startswith(text):
                row["prompt"] = prompted[len(text):]
            elif prompted is not None:
                row["prompted"] = prompted
            if text is not None and "generation %}" in template:
                row["spans"] = chat_spans(template, conversation)
            results[name][conversation] = row
    conversations = {name: {"messages": m, "tools": t} for name, (m, t) in CONVERSATIONS.items()}
    return {"variables": TOKENS, "conversations": conversations, "results": results}


def turn_spans(template, messages, tools, whole):
    """Character ranges of the assistant's turns, or None."""
    def beginning(count, prompt):
        texts, _ = chat_templates.render_jinja_template(
            [messages[:count]], tools=tools, chat_template=template, add_generation_prompt=prompt, **TOKENS)
        return texts[0]

    spans = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        try:
            begin, end = beginning(i, True), beginning(i + 1, False)
        except Exception:
            return None
        if not whole.startswith(begin) or not whole.startswith(end) or len(end) < len(begin):
            return None
        spans.append((len(begin), len(end)))
    return spans


def trained_runs(tokenizer, template, messages, tools):
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    (text,), (spans,) = chat_templates.render_jinja_template(
        [messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True, **TOKENS)
    if "generation %}" not in template:
        spans = turn_spans(template, messages, tools, text)
    if spans is None:
        return None
    starts = [begin for begin, _ in tokenizer.encode(text, add_special_tokens=False).offsets]
    runs = [[sum(s < begin for s in starts), sum(s < end for s in starts)] for begin, end in spans]
    return [run for run in runs if run[0] < run[1]]


def read_tokenizer(directory, name):
    with open(os.path.join(directory, "..", "tokenizers", name + ".json"), encoding="utf-8") as file:
        config = json.load(file)["tokenizer"]
    config["post_processor"] = None  # it would trim the offsets
    return Tokenizer.from_str(json.dumps(config))


def joined(messages):
    return [m | {"content": "".join(p["text"] for p in m["content"])} if isinstance(m["content"], list) else m for m in messages]


def read_parts(directory, templates):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    trained_by = {name: read_tokenizer(directory, name) for name in ("qwen2", "gemma")}

    def rendered(template, messages, tools, prompt=False):
        try:
            return tokenizer.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False,
                                                 add_generation_prompt=prompt)
        except Exception:
            return None

    results = {}
    for name, template in templates.items():
        results[name] = {}
        for conversation, (messages, tools) in PART_CONVERSATIONS.items():
            texts = [p["text"].strip() for m in messages if isinstance(m["content"], list) for p in m["content"]]
            text = rendered(template, messages, tools)
            reads = text is not None and all(t in text for t in texts) and "'type'" not in text and '"text"' not in text
            read = messages if reads else joined(messages)
            text = rendered(template, read, tools)
            if text is None:
                continue
            results[name][conversation] = dict(
                reads=reads, text=text, prompted=rendered(template, read, tools, True),
                runs={t: trained_runs(trained_by[t], template, read, tools) for t in trained_by})
    conversations = {name: {"messages": m, "tools": t} for name, (m, t) in PART_CONVERSATIONS.items()}
    return {"conversations": conversations, "results": results}


def labels(directory, templates, chat_results):
    results = {}
    for name in ("qwen2", "gemma", "llama3", "gpt2"):
        tokenizer = read_tokenizer(directory, name)
        results[name] = {
            template: {c: trained_runs(tokenizer, templates[template], *CONVERSATIONS[c]) for c in CONVERSATIONS
                       if chat_results[template][c]["text"] is not None}
            for template in ("chatml", "chatml_generation", "gemma2", "qwen3", "hermes", "zephyr", "llama31", "llama2")}
    return results


def render(template):
    try:
        text = chat_templates._compile_jinja_template(template).render(**CONTEXT)
        text.encode()
        return text
    except Exception:
        return None


def is_python(text):
    """Whether an address or a class of Python's shows, which no other implementation prints."""
    return text is not None and any(mark in text for mark in (" at 0x", "<built-in", "<bound", "<class"))


def main(directory, qwen2=None):
    chat_templates.datetime = Clock
    templates = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.jinja"))):
        with open(path, encoding="utf-8") as file:
            templates[os.path.basename(path).removesuffix(".jinja")] = file.read()
    if qwen2:
        with open(qwen2, encoding="utf-8") as file:
            templates["qwen2"] = file.read()
    sources = ["{{ " + e + " }}" for e in EXPRESSIONS] + BLOCKS
    rows = [[source, render(source)] for source in sources]
    expressions = {"context": CONTEXT, "rows": [row for row in rows if not is_python(row[1])]}
    all_chats = chats(templates)
    contents = {"chats": all_chats, "expressions": expressions, "labels": labels(directory, templates, all_chats["results"]),
                "parts": read_parts(directory, templates)}
    for name, content in contents.items():
        with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
