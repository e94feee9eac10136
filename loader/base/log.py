"""Prints messages: the loggers that UR_LOG_<NAME> configures, and the lines of SYCL_PI_TRACE.

`logger("LOADER").info(...)` prints `<LOADER>[INFO]: ...` as the variable UR_LOG_LOADER says. A
logger reads its variable at its first use. Without a variable it prints nothing. `print_pi_trace`
prints what the DPC++ runtime prints about its plugins.

A set-uid process ignores the variables, because one of them names a file to write.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .forks import make_lock
from .frozen_value import Value
from .search import filter_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error", "quiet")
LEGAL: Final = (
    "level:debug|info|warning|error|quiet;flush:debug|info|warning|error|quiet;"
    "output:stdout|stderr|file,<path>;fileline:0|1"
)

_loggers: dict[str, Logger] = {}
_lock = make_lock()


class Settings(Value):
    """The value of a UR_LOG variable.

    Attributes:
        level: the lowest level that is printed, an index into LEVELS.
        flush: the lowest level that is flushed at once, an index into LEVELS.
        output: "stdout", "stderr" or "file".
        path: the file, "" for a standard stream.
        fileline: whether a line names the file and line of its caller.
    """

    level: int
    flush: int = LEVELS.index("error")
    output: str = "stderr"
    path: str = ""
    fileline: bool = False


class Logger:
    """Prints messages from a level upwards. Any thread may use it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self._lock = make_lock()
        self._file: TextIO | None = None

    def debug(self, text: str) -> None:
        """Print details that only the author of an adapter needs."""
        self._print_message("debug", text)

    def info(self, text: str) -> None:
        """Print what happened."""
        self._print_message("info", text)

    def warning(self, text: str) -> None:
        """Print what is probably a mistake."""
        self._print_message("warning", text)

    def error(self, text: str) -> None:
        """Print what failed."""
        self._print_message("error", text)

    def is_enabled(self, level: str) -> bool:
        """Return whether messages of a level are printed."""
        return LEVELS.index(level) >= self.settings.level

    def write(self, level: str, text: str) -> None:
        """Print `text` unchanged if messages of the level are printed."""
        if not self.is_enabled(level):
            return
        with self._lock:
            stream = self._get_stream()
            put(stream, text, flush=LEVELS.index(level) >= self.settings.flush)

    def _print_message(self, level: str, text: str) -> None:
        where = ""
        if self.settings.fileline and self.is_enabled(level):
            caller = sys._getframe(2)
            where = f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}: "
        self.write(level, f"<{self.name}>[{level.upper()}]: {where}{text}\n")

    def _get_stream(self) -> TextIO | None:
        """Return the current standard stream, or the file, which is opened once."""
        if not self.settings.path:
            return sys.stdout if self.settings.output == "stdout" else sys.stderr
        if self._file is None:
            try:
                # Line-buffered whatever the flush level is: the last lines before a crash
                # are the most useful ones.
                self._file = open(  # noqa: SIM115 - open until the process ends
                    self.settings.path, "w", 1, encoding="utf-8", errors="backslashreplace"
                )
            except OSError as error:
                warn(
                    f"the log file {self.settings.path} of UR_LOG_{self.name} "
                    f"cannot be written ({error.strerror}): logging to stderr"
                )
                self.settings = Settings(
                    self.settings.level, self.settings.flush, fileline=self.settings.fileline
                )
                return sys.stderr
        return self._file


def get_logger(name: str, default: str = "quiet") -> Logger:
    """Return the logger of a name, such as "LOADER". It is created at the first call.

    Args:
        name: the part of the variable's name after UR_LOG_.
        default: its level if the variable is not set.
    """
    with _lock:
        if name not in _loggers:
            _loggers[name] = Logger(name, read_settings(name, default=default))
        return _loggers[name]


def read_settings(
    name: str, environ: Mapping[str, str] | None = None, default: str = "quiet"
) -> Settings:
    """Return the settings of UR_LOG_<name>.

    If the value is malformed, a warning line says so and the defaults apply.
    """
    text = filter_environ(environ).get(f"UR_LOG_{name}", "")
    plain = Settings(LEVELS.index(default))
    try:
        return parse(text, plain)
    except ValueError as error:
        warn(f"UR_LOG_{name}={text!r} is ignored: {error}; write {LEGAL}")
        return plain


def read_trace_bits(name: str, environ: Mapping[str, str] | None = None) -> int:
    """Return the bits of SYCL_PI_TRACE or SYCL_UR_TRACE, 0 if the variable is not set.

    1 means discovery, 2 means calls, -1 means everything. The number is read as C does: hexadecimal
    after 0x, else the leading digits, else 0.
    """
    text = filter_environ(environ).get(name, "").strip()
    if not text:
        return 0
    import re  # it takes milliseconds, and the variable is seldom set

    if hexadecimal := re.fullmatch(r"([+-]?)0[xX]([0-9a-fA-F]+)", text):
        return int(hexadecimal[1] + hexadecimal[2], 16)
    decimal = re.match(r"[+-]?[0-9]+", text)
    return int(decimal[0]) if decimal else 0


def print_pi_trace(level: str, text: str, environ: Mapping[str, str] | None = None) -> None:
    """Print `SYCL_PI_TRACE[level]: text` to stderr if SYCL_PI_TRACE asks for it.

    Args:
        level: "basic" needs bit 1; "all" and "-1" need the value -1.
        environ: where the variable is read, `os.environ` by default.
    """
    bits = read_trace_bits("SYCL_PI_TRACE", environ)
    if bits & 1 if level == "basic" else bits == -1:
        put(sys.stderr, f"SYCL_PI_TRACE[{level}]: {text}\n")


def warn(text: str) -> None:
    """Print a warning line to stderr, whatever the levels are."""
    put(sys.stderr, f"fairlead: warning: {text}\n")


def put(stream: TextIO | None, text: str, flush: bool = True) -> None:
    """Write to a stream that may be closed or absent. Errors are ignored."""
    try:
        if stream is not None:
            stream.write(text)
            if flush:
                stream.flush()
    except (OSError, ValueError):
        pass


def parse(text: str, plain: Settings) -> Settings:
    """Parse the value of a UR_LOG variable.

    Blanks, quotes, upper case and empty elements are accepted.

    Args:
        plain: the settings for what the value does not mention.

    Raises:
        ValueError: the value is malformed. The message says where.
    """
    found: dict[str, str] = {}
    for element in filter(None, map(str.strip, text.split(";"))):
        key, colon, word = (part.strip().strip("'\"") for part in element.partition(":"))
        if not colon or key.lower() not in ("level", "flush", "output", "fileline"):
            raise ValueError(f"{element!r} is not one of its settings")
        found[key.lower()] = word
    kind, _, path = found.get("output", plain.output).partition(",")
    if kind.strip().lower() not in ("stdout", "stderr", "file") or (
        kind.strip().lower() == "file"
    ) != bool(path.strip()):
        raise ValueError(f"{found['output']!r} is not an output")
    fileline = found.get("fileline", "0").lower()
    if fileline not in ("0", "1", "true", "false"):
        raise ValueError(f"{fileline!r} is neither 0 nor 1")
    return Settings(
        _parse_level(found["level"]) if "level" in found else plain.level,
        _parse_level(found["flush"]) if "flush" in found else plain.flush,
        kind.strip().lower(),
        path.strip().strip("'\""),
        fileline in ("1", "true"),
    )


def _parse_level(word: str) -> int:
    if word.lower() not in LEVELS:
        raise ValueError(f"{word!r} is not a level")
    return LEVELS.index(word.lower())
