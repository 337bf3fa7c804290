#!/usr/bin/env bash
# The tables of docs/ are those of the program. Every command of README.md and docs/: its verb, flags, config keys and
# files exist, and what trains, samples or scores on the demo's files runs, cut short. Links, and pages that the program
# names, exist; every page is in the map of pages. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
"$temper" demo --output demo --sft-steps 120 --rl-steps 2 > demo.log 2>&1 || fail "demo: $(tail -1 demo.log)"
python3 "$TEMPER_SOURCE_DIR/tools/update_docs.py" "$temper" --check || bad=1
ln -s "$TEMPER_SOURCE_DIR/configs" configs
ln -s "$TEMPER_SOURCE_DIR/examples" examples
python3 - "$temper" "$TEMPER_SOURCE_DIR" <<'P' || bad=1
import pathlib, re, shlex, subprocess, sys

temper, source = sys.argv[1], pathlib.Path(sys.argv[2])
TRAINING = "sft dpo orpo reward grpo ppo distill".split()
# They wait for clients, or for whoever types.
WAITING = {"serve", "chat"}
helps, problems, seen, ran = {}, [], 0, 0

with_commands = [source / "README.md", *sorted((source / "docs").glob("*.md")), source / "examples/README.md"]
pages = [*with_commands, source / "CONTRIBUTING.md", *sorted((source / "bench/results").glob("*.md"))]
pages += sorted((source / "temper").glob("*/README.md"))

def anchors(page):
    """The anchors that GitHub gives the page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}

# Prose is wrapped; tables and code are not. Links lead to files and headings that there are.
links = 0
for page in pages:
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fenced ^= line.startswith("```")
        if fenced or line.startswith("    "):
            continue
        place = f"{page.relative_to(source)}:{number}"
        if len(line) > 120 and not line.startswith("|"):
            problems.append(f"{place}: {len(line)} columns, expected at most 120")
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"https?:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                problems.append(f"{place}: no file {target}")
            elif anchor and anchor not in anchors(file):
                problems.append(f"{place}: no heading {target}")
for file in (source / "temper").rglob("*.*"):
    if file.suffix in {".h", ".cpp"}:
        for name in re.findall(r"\b(?:docs/\w+|CONTRIBUTING)\.md", file.read_text()):
            if not (source / name).exists():
                problems.append(f"{file.relative_to(source)}: no page {name}")
for page in (source / "docs").glob("*.md"):
    if page.name != "README.md" and f"({page.name})" not in (source / "docs/README.md").read_text():
        problems.append(f"docs/README.md: does not list {page.name}")

# Papers that sources cite are in the tables of papers and models; sources that these and pages name exist.
listed = {name: subprocess.run([temper, "list", name, "--markdown"], capture_output=True, text=True,
                               check=True).stdout
          for name in ("papers", "models")}
papers = "".join(listed.values())
for file in [*(source / "temper").rglob("*.cpp"), *(source / "temper").rglob("*.h")]:
    for paper in re.findall(r"arXiv (\d{4}\.\d{4,5})", file.read_text()):
        if paper not in papers:
            problems.append(f"{file.relative_to(source)}: arXiv {paper} is in no registry, and not in temper/cli/list/papers.cpp")
texts = {page.name: page.read_text() for page in (source / "docs").glob("*.md")} | listed
for name, text in texts.items():
    for file in re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9-]+\.(?:cpp|h))`", text):
        if not (source / file).exists() and not (source / "temper" / file).exists():
            problems.append(f"{name}: no file {file}")

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

for page in with_commands:
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
print(f"{seen} commands, {ran} of them run; {links} links")
for problem in problems:
    print("FAILED:", problem)
sys.exit(bool(problems) or seen < 60 or ran < 14 or links < 100)
P
exit $bad
