"""Mutants of a Python module: its syntax tree with one small fault put in.

A mutant is named by the line that changes, before and after, as `ast.unparse` writes it, and by the function
that holds it. So a list of mutants outlives edits elsewhere in the file.

Left alone: docstrings and the text of messages (f-strings, what is raised), `__repr__`, type annotations,
`__all__`, `if TYPE_CHECKING`, `lru_cache` (speed only), the `strict` of `zip` (a check of the code against
itself), swapped arguments of commutative functions, and `while True`, which would only run out of time.
"""

import ast
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
COMMUTATIVE = {*EXTREMES, "hypot", "logaddexp"}
CHECKED_BY_TYPE = {"isinstance", "issubclass", "cast", "super"}
"""Calls whose arguments are not swapped or dropped: any run would stop at once."""

Replacement = tuple[str, ast.AST]


class Mutant(NamedTuple):
    """One fault: where it is, what kind, the line before and after, and the whole mutated source."""

    id: str
    module: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    source: str


class _Site(NamedTuple):
    """A node that can be replaced: the field of its parent that holds it (at `position`, in a list)."""

    parent: ast.AST
    field: str
    position: int | None
    node: ast.AST
    function: str

    def put(self, node: ast.AST) -> None:
        """Place a node where the original stood."""
        if self.position is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node


def mutants(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module's source, in the order of its lines."""
    tree = ast.parse(source)
    original = ast.unparse(tree).splitlines()
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for site in list(_sites(tree, "")):
        for kind, replacement in _replacements(site):
            site.put(replacement)
            text = ast.unparse(ast.fix_missing_locations(tree))
            site.put(site.node)
            before, after = _difference(original, text.splitlines())
            if before == after:
                continue
            name = "\n".join((module, site.function, before, after))
            seen[name] = number = seen.get(name, 0) + 1
            digest = hashlib.sha256(f"{name}\n{number}".encode()).hexdigest()[:10]
            line = getattr(site.node, "lineno", getattr(site.parent, "lineno", 0))
            found.append(Mutant(digest, module, site.function, line, kind, before, after, text))
    return found


def _difference(old: list[str], new: list[str]) -> tuple[str, str]:
    """Return the first line that differs, as it was and as it is."""
    for before, after in zip(old, new, strict=False):
        if before != after:
            return before.strip(), after.strip()
    return "", ""


def _sites(node: ast.AST, function: str) -> Iterator[_Site]:
    """Walk the tree, but not into what is left alone."""
    for field, value in ast.iter_fields(node):
        if _skipped(node, field):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _left_alone(child):
                continue
            yield _Site(node, field, index if isinstance(value, list) else None, child, function)
            inner = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{function}.{child.name}" if function else child.name
            yield from _sites(child, inner)


def _skipped(node: ast.AST, field: str) -> bool:
    return (
        field in ("annotation", "returns", "ctx", "type_params")
        or (isinstance(node, ast.Raise) and field in ("exc", "cause"))
        or (isinstance(node, ast.ClassDef) and field == "bases")
        or (isinstance(node, ast.ExceptHandler) and field == "type")
    )


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.FunctionDef(name="__repr__"):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.Call(func=ast.Name(id="lru_cache")):
            return True
        case ast.keyword(arg="strict", value=ast.Constant()):
            return True
        case ast.Import() | ast.ImportFrom():
            return True
    return False


def _replacements(site: _Site) -> Iterator[Replacement]:
    node = site.node
    yield from _of_operators(node)
    yield from _of_constants(node)
    yield from _of_statements(node)
    yield from _of_conditions(site)
    if isinstance(node, ast.Call):
        yield from _of_calls(node)


def _of_operators(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    operators = [*node.ops]
                    operators[index] = other()
                    yield "comparison", ast.Compare(node.left, operators, node.comparators)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield "arithmetic", ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
        case ast.UnaryOp(op=ast.USub()):
            yield "arithmetic", node.operand
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "boolean", ast.BoolOp(other, node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "boolean", node.operand


def _of_constants(node: ast.AST) -> Iterator[Replacement]:
    if not isinstance(node, ast.Constant):
        return
    value: Any = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int | float):
        for other in (1,) if value == 0 else (0, 2) if value == 1 else (value + 1, value * 2):
            yield "constant", ast.Constant(type(value)(other))


def _of_statements(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Expr() | ast.Raise() | ast.AugAssign():
            yield "deletion", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "deletion", ast.Pass()
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "deletion", ast.Return(ast.Constant(None))


def _of_conditions(site: _Site) -> Iterator[Replacement]:
    """Conditions of `if`, of conditional expressions and of comprehensions, and the end of `while`."""
    held = (type(site.parent), site.field)
    if held in ((ast.If, "test"), (ast.IfExp, "test")):
        yield "condition", ast.Constant(True)
        yield "condition", ast.Constant(False)
    elif held == (ast.comprehension, "ifs"):
        yield "condition", ast.Constant(True)
    elif held == (ast.While, "test") and not isinstance(site.node, ast.Constant):
        yield "condition", ast.Constant(False)


def _of_calls(node: ast.Call) -> Iterator[Replacement]:
    name = _name(node.func)
    if name in EXTREMES:
        yield "extreme", ast.Call(_renamed(node.func, EXTREMES[name]), node.args, node.keywords)
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    if len(node.args) != 2 or starred or name in CHECKED_BY_TYPE:
        return
    yield "argument", ast.Call(node.func, node.args[:1], node.keywords)
    if name not in COMMUTATIVE:
        yield "argument", ast.Call(node.func, node.args[::-1], node.keywords)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _renamed(function: ast.expr, name: str) -> ast.expr:
    if isinstance(function, ast.Attribute):
        return ast.Attribute(function.value, name, function.ctx)
    return ast.Name(name, ast.Load())


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
