#!/usr/bin/env bash
# Every command of README.md and docs/: its verb, flags, config keys and files exist, and what trains, samples or scores
# on the demo's files runs, cut short. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
"$temper" demo --output demo --sft-steps 120 --rl-steps 2 > demo.log 2>&1 || fail "demo: $(tail -1 demo.log)"
ln -s "$TEMPER_SOURCE_DIR/configs" configs
ln -s "$TEMPER_SOURCE_DIR/examples" examples
python3 - "$temper" "$TEMPER_SOURCE_DIR" <<'P' || bad=1
import pathlib, re, shlex, subprocess, sys

temper, source = sys.argv[1], pathlib.Path(sys.argv[2])
TRAINING = "sft dpo orpo reward grpo ppo distill".split()
# They wait for clients, or for whoever types.
WAITING = {"serve", "chat"}
helps, problems, seen, ran = {}, [], 0, 0

# Prose is wrapped; tables, code and links' targets are not.
for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fenced ^= line.startswith("```")
        if len(line) > 120 and not fenced and not line.startswith(("|", "    ")):
            problems.append(f"{page.name}:{number}: {len(line)} columns, expected at most 120")

def help_of(verb):
    if verb not in helps:
        done = subprocess.run([temper, verb, "--help"], capture_output=True, text=True)
        helps[verb] = done.stdout if done.returncode == 0 else None
    return helps[verb]

def commands(page):
    """(line number, arguments, the error that the page shows behind it or "") of the temper commands in the page's code."""
    fenced, pending = False, ""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and not line.startswith("    "):
            continue
        text = pending + line.strip().removeprefix("$ ")
        pending = ""
        if text.endswith("\\"):
            pending = text[:-1]
            continue
        text = re.sub(r"^([A-Z_]+=\S+ )+", "", text)
        if re.match(r"(build/)?temper [a-z]", text):
            try:
                arguments = shlex.split(text, comments=True)
            except ValueError:
                problems.append(f"{page.name}:{number}: cannot be read by a shell: {text}")
                continue
            for end in ("|", ">", "&", "&&", "2>", "<"):
                if end in arguments:
                    arguments = arguments[:arguments.index(end)]
            after = next((l.strip() for l in lines[number:] if l.strip()), "")
            yield number, arguments[1:], after if after.startswith("temper: ") else ""

for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
    for number, arguments, error in commands(page):
        seen += 1
        verb, place = arguments[0], f"{page.name}:{number}"
        text = help_of(verb)
        if text is None:
            problems.append(f"{place}: no verb `{verb}`")
            continue
        if error:
            done = subprocess.run([temper, *arguments], capture_output=True, text=True, timeout=120)
            if not done.stderr.strip().startswith(error[:60]):
                problems.append(f"{place}: expected {error}, got {done.stderr.strip()[-300:]}")
            continue
        trains = verb in TRAINING or verb == "check"
        if verb == "check" and len(arguments) > 1 and arguments[1] in TRAINING:
            text += help_of(arguments[1]) or ""
        for argument in arguments[1:]:
            flag = re.match(r"--[a-z][a-z-]*", argument)
            if flag and not re.search(re.escape(flag.group()) + r"(?![a-z-])", text):
                problems.append(f"{place}: `{verb}` has no {flag.group()}")
            key = re.match(r"([a-z_]+(?:\.[a-z_]+)*)=", argument)
            if trains and key and not re.search(r"(?<![a-z_.])" + re.escape(key.group(1)) + r"(?![a-z_])", text):
                problems.append(f"{place}: `{verb}` has no key {key.group(1)}")
            if re.match(r"(configs|examples)/", argument) and not (source / argument).exists():
                problems.append(f"{place}: no file {argument}")
        # Runs what needs nothing but the demo's files and those of the project.
        named = " ".join(arguments[1:])
        literal = not re.search(r"\b[A-Z]{3,}\b|http|runs/|hub|openai/", named.replace("output_dir=runs/", ""))
        config = [a for a in arguments if a.startswith("configs/")]
        # A model that the page makes by another program, or by a server.
        models = [m for a in arguments for m in re.findall(r"(?:^|model\.path=)(demo/\S+/final)$", a)]
        models += [m for c in config if (source / c).is_file() for m in re.findall(r"^model: \{path: ([^,}]+)", (source / c).read_text(), re.M)]
        if any(not pathlib.Path(m).exists() for m in models):
            literal = False
        if any("openai/gsm8k" in (source / c).read_text() or "runs/" in re.sub(r"output_dir: runs/\S+", "", (source / c).read_text())
               for c in config if (source / c).is_file()):
            literal = False
        if verb in WAITING or "demo/" not in named and not config or not literal or "--nproc" in named or "roles" in named:
            continue
        run = [temper, *arguments]
        if verb in TRAINING:
            run += ["train.max_steps=1", "resume=never", f"output_dir=out/{seen}"]
        done = subprocess.run(run, capture_output=True, text=True, timeout=120)
        ran += 1
        if done.returncode:
            problems.append(f"{place}: exit status {done.returncode}: {' '.join(arguments)}\n    {done.stderr.strip()[-400:]}")
print(f"{seen} commands, {ran} of them run")
for problem in problems:
    print("FAILED:", problem)
sys.exit(bool(problems) or seen < 60 or ran < 14)
P
exit $bad
