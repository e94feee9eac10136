"""Makes C of the table of operations (loader/base/operations.ini), for icd/native/build.py.

`emit_numbers` makes operations.cdef.h, which cffi reads, too: `enum fl_op`. `emit_facts` makes
operations.h: the OpenCL function of each operation, the kinds of its sides, and the forms that the
record layer goes by. `emit_records` makes record_operations.h: a recording table's function for
each operation. `emit_issues` makes replay_operations.h: the driver's calls for transfers.
`emit_fences` makes fenced_calls.h: functions for the driver's, which look at the queue first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

#: The end of an enqueue's parameters: what it waits for, and its event.
_ENDS = 3


def _name(operation: Any) -> str:
    return f"FL_{operation.name.upper()}"


def _join(lines: Iterable[str]) -> str:
    return "\n".join([*lines, ""])


def emit_numbers(operations: Sequence[Any]) -> str:
    """Return the declaration that operations.cdef.h has, and that cffi is given."""
    return f"enum fl_op {{ {', '.join(map(_name, operations))} }};"


# facts

#: The letter of a side in a form (icd/native/record_layer/commands.c).
_SIDES = {
    ("source", "buffer"): "M",
    ("source", "image"): "M",
    ("source", "host"): "H",
    ("source", "svm"): "s",
    ("target", "buffer"): "M",
    ("target", "image"): "M",
    ("target", "host"): "R",
    ("target", "svm"): "t",
}


def _make_form(operation: Any) -> str:
    """Return the letters of an enqueue's parameters, in their order."""
    if operation.name == "kernel":
        return "QkndddWLE"
    letters = "Q"
    for operand in operation.functions["cl"].operands:
        if operand in ("source", "target"):
            letters += _SIDES[operand, getattr(operation, operand)]
        elif operand in operation.numbers and operation.numbers[operand].count > 1:
            letters += "3"
        else:
            letters += {"pattern": "p", "colour": "c"}.get(operand, "n")
    return letters + "WLE"


def emit_facts(operations: Sequence[Any], first_line: str) -> str:
    """Return the text of operations.h. What is defined in it is used by some of its readers."""
    forms = {one.functions["cl"].name: _make_form(one) for one in operations}
    sides = (
        f"    [{_name(one)}] = {{FL_{one.source.upper() or 'NO'}_SIDE, "
        f"FL_{one.target.upper() or 'NO'}_SIDE}},"
        for one in operations
    )
    return _join(
        [
            first_line,
            "#pragma once",
            "enum fl_side_kind { FL_NO_SIDE, FL_BUFFER_SIDE, FL_IMAGE_SIDE, FL_SVM_SIDE, "
            "FL_HOST_SIDE };",
            "typedef struct fl_sides { unsigned char source, target; } fl_sides;",
            "#ifdef FL_DEFINE_OPERATION_SLOTS",
            "static const int operation_slots[] = {",
            *(f"    [{_name(one)}] = SLOT_{one.functions['cl'].name}," for one in operations),
            "};",
            "#endif",
            "#ifdef FL_DEFINE_OPERATION_SIDES",
            "static const fl_sides operation_sides[] = {",
            *sides,
            "};",
            "#endif",
            "#define FL_OPERATION_FORMS "
            + ", ".join(f'[SLOT_{name}] = "{form}"' for name, form in forms.items()),
        ]
    )


# recording


def _emit_record(operation: Any, function: Any) -> Iterator[str]:
    operands = operation.functions["cl"].operands
    names = [parameter.name for parameter in function.parameters[1:-_ENDS]]
    fields, threes, given = [f".op = {_name(operation)}"], list[str](), {"blocking": "false"}
    for operand, name in zip(operands, names, strict=True):
        if operand in ("source", "target"):
            field = "host" if getattr(operation, operand) == "host" else operand
            fields.append(f".{field} = (void *){name}")
        elif operand not in operation.numbers:
            given[operand] = name
        elif operation.numbers[operand].count == 1:
            fields.append(f".n[{operation.numbers[operand].first}] = {name}")
        else:
            put = "put_region" if operand == "region" else "put_three"
            threes.append(f"{put}(command.n + {operation.numbers[operand].first}, {name})")
    if operation.numbers and "region" not in operation.numbers:  # one row of one slice
        fields += [".n[7] = 1", ".n[8] = 1"]
    pattern = given.get("pattern", given.get("colour", "NULL"))
    yield f"static {function.format_c_declaration('record_' + function.name)} {{"
    yield f"    ENTER({function.name});"
    yield f"    fl_command command = {{{', '.join(fields)}}};"
    yield f"    bool complete = {' & '.join(threes) or 'true'};"
    yield (
        f"    return record_operation(&c, SLOT_{function.name}, &command, complete, "
        f"{given['blocking']}, {pattern}, {given.get('pattern_size', '0')}, WAITS);"
    )
    yield "}"


def _emit_refusal(function: Any) -> str:
    """Return a recording table's function for a command that is not recorded.

    It refuses the call, in the function's own form.
    """
    fail = {
        "return": "return code;",
        "errcode_ret": "if (errcode_ret)\n        *errcode_ret = code;\n    return NULL;",
    }[function.error_channel]
    return (
        f"static {function.format_c_declaration('refused_' + function.name)} {{\n"
        f"    void **table;\n    cl_int code = refuse_call({function.parameters[0].name}, "
        f"SLOT_{function.name}, &table);\n    if (table)\n"
        f"        return CALL(table, {function.name})(ARGUMENTS_{function.name});\n    {fail}\n}}"
    )


def emit_records(
    operations: Sequence[Any], functions: Iterable[Any], written: Iterable[str], first_line: str
) -> str:
    """Return the text of record_operations.h.

    Args:
        functions: OpenCL's functions with a slot.
        written: the functions that record.c records itself.
    """
    transfers = {one.functions["cl"].name: one for one in operations if one.target}
    lines, filled = [first_line], list[tuple[str, str]]()
    for function in functions:
        name = function.name
        if name in transfers:
            lines += _emit_record(transfers[name], function)
            filled.append((name, f"record_{name}"))
        elif name.startswith("clEnqueue") and name not in written:
            lines.append(_emit_refusal(function))
            filled.append((name, f"refused_{name}"))
    fill = " ".join(f"(slots)[SLOT_{name}] = (void *)(fn_{name} *){made};" for name, made in filled)
    return _join([*lines, f"#define FL_FILL_OPERATIONS(slots) {fill}"])


# replaying


def _name_argument(operation: Any, operand: str) -> str:
    """Return what a replay gives the driver for an operand."""
    if operand in operation.numbers:
        first, count = operation.numbers[operand].first, operation.numbers[operand].count
        return f"n[{first}]" if count == 1 else f"n + {first}"
    if operand in ("source", "target"):
        return "c->host" if getattr(operation, operand) == "host" else f"c->{operand}"
    return {"blocking": "CL_FALSE", "colour": "c->pattern"}.get(operand, f"c->{operand}")


def emit_issues(operations: Sequence[Any], first_line: str) -> str:
    """Return the text of replay_operations.h. What has addresses is done by the functions `f`."""
    lines = [first_line]
    for one in operations:
        if not one.target:  # launches, and places in the order
            continue
        function = one.functions["cl"]
        called = f"f->{function.name}" if one.target == "svm" else f"CALL(t, {function.name})"
        arguments = [_name_argument(one, operand) for operand in function.operands]
        lines.append(f"case {_name(one)}:")
        lines.append(f"    return {called}({', '.join(['q', *arguments, 'waits, list, event'])});")
    return _join(lines)


# fences


def emit_fences(functions: Iterable[Any], first_line: str) -> str:
    """Return the text of fenced_calls.h: what stands for the driver's calls on a queue.

    Args:
        functions: OpenCL's functions with a slot.
        first_line: the first line of the file.
    """
    lines, names = [first_line], list[str]()
    for function in functions:
        if not function.name.startswith("clEnqueue"):  # cuda_lanes.c has its own clFinish
            continue
        names.append(function.name)
        arguments = ", ".join(parameter.name for parameter in function.parameters)
        queue = function.parameters[0].name
        lines += [
            f"static {function.format_c_declaration('fenced_' + function.name)} {{",
            f"    return CALL(fence({queue}), {function.name})({arguments});",
            "}",
        ]
    fences = (f"    {{SLOT_{name}, (void *)(fn_{name} *)fenced_{name}}}," for name in names)
    return _join([*lines, "#define FL_FENCES \\", " \\\n".join(fences)])
