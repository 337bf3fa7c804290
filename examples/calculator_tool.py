#!/usr/bin/env python3
"""A calculator as a tool (environment.tools): reads {"expression": "12*34"} as a line of JSON, writes the value.

It computes whole numbers with + - * // and brackets, and nothing else: what the model writes is never executed. An exit
status other than 0 is a failure, which the model is told of.
"""
import ast
import json
import operator
import sys

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def value(node):
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value(node.left), value(node.right))
    raise ValueError("expected whole numbers, + - * // and brackets")


try:
    print(value(ast.parse(str(json.load(sys.stdin)["expression"]), mode="eval").body))
except (ArithmeticError, SyntaxError, ValueError, KeyError, TypeError, RecursionError) as e:
    print(f"error: {e}")
