#!/usr/bin/env python3
"""Makes all that configs/frozen_lake.yaml and configs/sokoban.yaml train on: a tokenizer of moves and cells with a chat
template, a config of a small model, and rows.

    python3 examples/grid_games_model.py frozen_lake

The configs name the next commands. A turn is one move, a word. The chat template writes a grid as one token per cell,
with its place: G03 is a goal in row 0, column 3. It leaves out the most frequent cells (ice, walls). So a small model
need not first learn which position in the text is which cell. sft.jsonl has walks in which half of the moves are drawn
at random and the others lead towards the goal: a warm start for `grpo`, which learns to prefer the latter. rows.jsonl
and test.jsonl have seeds of boards.
"""
import collections
import json
import pathlib
import random
import sys

import word_model

TEMPLATE = ("{%- for message in messages %}<|im_start|>{{ message.role }}"
            "{%- if message.role == 'user' %}{%- for row in message.content.split('\n')[-SIZE:] %}{%- set r = loop.index0 %}"
            "{%- for cell in row %}{%- if cell in 'CELLS' %}{{ cell }}{{ r }}{{ loop.index0 }}{%- endif %}{%- endfor %}{%- endfor %}"
            "{%- else %}{{ message.content }}{%- endif %}<|im_end|>{%- endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}")
MOVES = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
BEGIN = {"role": "user", "content": "\n"}


class Lake:
    """A state is the cell of the player. `after` gives the state after a move; None: the player fell into a hole."""
    SIZE, CELLS, TURNS = 4, "PGO", 8
    FIELDS = {"size": SIZE, "p": 0.8}

    def __init__(self):
        cells = [(r, c) for r in range(self.SIZE) for c in range(self.SIZE)]
        self.start, self.goal = random.sample(cells, 2)
        self.holes = {cell for cell in cells if random.random() > self.FIELDS["p"]} - {self.start, self.goal}

    def after(self, state, move):
        to = tuple(min(max(x + d, 0), self.SIZE - 1) for x, d in zip(state, MOVES[move]))
        return None if to in self.holes else to

    def solved(self, state):
        return state == self.goal

    def text(self, state):
        cell = lambda here: "P" if here == state else "G" if here == self.goal else "O" if here in self.holes else "_"
        return "\n".join("".join(cell((r, c)) for c in range(self.SIZE)) for r in range(self.SIZE))


class Room:
    """A state is the cells of the player and of the box."""
    SIZE, CELLS, TURNS = 5, "PSXO_√", 10
    FIELDS = {"size": [SIZE, SIZE], "boxes": 1, "max_steps": TURNS}

    def __init__(self):
        inside = [(r, c) for r in range(1, self.SIZE - 1) for c in range(1, self.SIZE - 1)]
        self.floor = {cell for cell in inside if random.random() < 0.9}
        self.start = self.target = None
        if len(self.floor) >= 4:
            player, box, self.target = random.sample(sorted(self.floor), 3)
            self.start = (player, box)

    def after(self, state, move):
        player, box = state
        step = lambda cell: tuple(x + d for x, d in zip(cell, MOVES[move]))
        to = step(player)
        if to not in self.floor or (to == box and step(box) not in self.floor):
            return state
        return (to, step(box) if to == box else box)

    def solved(self, state):
        return state[1] == self.target

    def text(self, state):
        player, box = state

        def cell(here):
            on = here == self.target
            return "#" if here not in self.floor else "PS"[on] if here == player else "X√"[on] if here == box else "_O"[on]
        return "\n".join("".join(cell((r, c)) for c in range(self.SIZE)) for r in range(self.SIZE))


def distances(game):
    """For each state that can be reached, the fewest moves to a solved one; states that have none are left out."""
    before, ahead, seen = collections.defaultdict(set), [game.start], {game.start}
    while ahead:
        state = ahead.pop()
        for move in () if game.solved(state) else MOVES:
            to = game.after(state, move)
            if to is not None:
                before[to].add(state)
                if to not in seen:
                    seen.add(to)
                    ahead.append(to)
    far = {state: 0 for state in seen if game.solved(state)}
    queue = collections.deque(far)
    while queue:
        state = queue.popleft()
        for earlier in before[state] - far.keys():
            far[earlier] = far[state] + 1
            queue.append(earlier)
    return far


def walk(kind):
    """The messages of a walk on a new board, which can be solved in an episode's number of turns."""
    while True:
        game = kind()
        far = distances(game) if game.start else {}
        if 0 < far.get(game.start, 0) <= kind.TURNS:
            break
    state, messages = game.start, [BEGIN]
    for _ in range(kind.TURNS):
        messages.append({"role": "user", "content": game.text(state)})
        best = [m for m in MOVES if far.get(game.after(state, m), 99) < far.get(state, 99)]
        move = random.choice(best if best and random.random() < 0.5 else list(MOVES))
        messages.append({"role": "assistant", "content": move})
        state = game.after(state, move)
        if state is None or game.solved(state):
            break
    return messages


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "frozen_lake"
    kind = {"frozen_lake": Lake, "sokoban": Room}[name]
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else name)
    out.mkdir(parents=True, exist_ok=True)
    places = [f"{r}{c}" for r in range(kind.SIZE) for c in range(kind.SIZE)]
    words = ["<|im_start|>", "<|im_end|>", "user", "assistant", *MOVES, *(cell + place for cell in kind.CELLS for place in places)]
    word_model.write_tokenizer(out, words, TEMPLATE.replace("SIZE", str(kind.SIZE)).replace("CELLS", kind.CELLS))
    word_model.write_config(out, words, layers=2, positions=512)
    random.seed(1)
    with open(out / "rows.jsonl", "w") as rows, open(out / "test.jsonl", "w") as test, open(out / "sft.jsonl", "w") as sft:
        for i in range(4200):
            row = json.dumps({"prompt": [BEGIN], "seed": random.randrange(10**9), "instructions": False, **kind.FIELDS})
            print(row, file=rows if i < 4000 else test)
        for _ in range(4000):
            print(json.dumps({"messages": walk(kind)}), file=sft)


if __name__ == "__main__":
    main()
