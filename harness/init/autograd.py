"""Treats functions that call a torch.autograd.Function as if they did the work of its forward themselves."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence


def functions_at_top(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return a file's functions. `f = C.apply` and `return C.apply(x)` get the body of C's forward."""
    forwards = {
        node.name: forward
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for forward in _forward(node)
    }
    return [made for node in tree.body for made in _function(node, forwards)]


def _forward(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    is_function = any(ast.unparse(base).endswith("Function") for base in node.bases)
    for each in node.body if is_function else ():
        if isinstance(each, ast.FunctionDef) and each.name == "forward" and each.args.args:
            yield each


def _function(node: ast.stmt, forwards: Mapping[str, ast.FunctionDef]) -> Iterator[ast.FunctionDef]:
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Attribute(value=ast.Name(id=owner), attr="apply")
        ) if owner in forwards:
            forward = copy.deepcopy(forwards[owner])
            context = forward.args.args.pop(0).arg
            body = _without(context, forward.body)
            yield _made(ast.FunctionDef(name, forward.args, body, []), node)
        case ast.FunctionDef(
            body=[
                *before,
                ast.Return(
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Name(id=owner), attr="apply"), args=given, keywords=[]
                    )
                ),
            ]
        ) if owner in forwards:
            context, *names = (each.arg for each in forwards[owner].args.args)
            pairs = zip(names, given, strict=False)
            renamed = [
                ast.Assign([ast.Name(name, ast.Store())], value)
                for name, value in pairs
                if ast.unparse(value) != name
            ]
            body = [*before, *renamed, *_without(context, forwards[owner].body)]
            yield _made(ast.FunctionDef(node.name, node.args, body, []), node)
        case ast.FunctionDef():
            yield node


def _without(context: str, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements, without those that store values for the backward pass."""
    return [each for each in body if not ast.unparse(each).startswith(f"{context}.")]


def _made(function: ast.FunctionDef, at: ast.stmt) -> ast.FunctionDef:
    return ast.fix_missing_locations(ast.copy_location(function, at))
