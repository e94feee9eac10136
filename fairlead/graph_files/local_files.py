"""Whether a program of a graph file reads files of this machine while it is built.

What it reads can reach the graph's outputs. This looks at the text alone, and refuses too much
rather than too little. It is not a sandbox: kernels run.
"""

from __future__ import annotations

import re
from typing import Final

#: A backslash at the end of a line, also as a trigraph, joins it with the next one.
_JOINT: Final = re.compile(r"(?:\\|\?\?/)[ \t\v\f]*(?:\r\n|\n|\r)")
_BLANKS: Final = r"(?:\s|/\*.*?\*/)*"
#: `#` has three spellings. PyOpenCL's own headers are taken from its package.
_OWN: Final = r"<pyopencl-[\w-]+(?:\.h|/\w+\.cl)>"
_DIRECTIVE: Final = re.compile(
    rf"(?:#|%:|\?\?=){_BLANKS}(?:include\w*|import|embed)\b(?!{_BLANKS}{_OWN})", re.DOTALL
)
#: They tell whether a file is there, or let the assembler read one.
_WORD: Final = re.compile(r"\b(?:__has_include\w*|__has_embed|asm|__asm|__asm__|\w*incbin)\b")
#: Options of which none names a file.
_OPTION: Final = re.compile(r"-[DU][^\s\"']*|-cl-[\w=.+-]+|-[wg]|-O\w*|-W[\w=+-]*|-kernel-arg-info")

#: What follows -D or -U behind a blank.
_NAME: Final = re.compile(r"[A-Za-z_][^\s\"']*")


def find_local_file(source: str, options: str) -> str:
    """Return what may read a file of this machine, "" if nothing does.

    Args:
        source: the source of the program, "" if it has none.
    """
    text = _JOINT.sub("", source)
    found = _DIRECTIVE.search(text) or _WORD.search(text)
    if found:
        return " ".join(found.group().split())
    before = ""
    for option in options.split():
        allowed = _NAME if before in ("-D", "-U") else _OPTION
        if not allowed.fullmatch(option):
            return option
        before = option
    return ""
