#!/usr/bin/env python3
"""Writes the tables in docs/ that come from the program, between `<!-- temper list TOPIC -->` and `<!-- end -->`.

    tools/update_docs.py build/temper           updates the pages (`make docs`)
    tools/update_docs.py build/temper --check   changes nothing; names the pages that are out of date, and fails if any
"""
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"(<!-- temper list (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(program, check):
    def written(block):
        done = subprocess.run([program, "list", block[2], "--markdown"], capture_output=True, text=True, check=True)
        return block[1] + "\n" + done.stdout + block[3]

    differ = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        new = BLOCK.sub(written, text)
        if new != text:
            differ.append(page.name)
            if not check:
                page.write_text(new)
    if differ:
        print(("tables are out of date; run `make docs`: " if check else "wrote ") + ", ".join(differ))
    return bool(differ) and check


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--check" in sys.argv[2:]))
