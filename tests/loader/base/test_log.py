"""Loggers and the variables that configure them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from helpers.support import RunPython
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.conformance.threads import in_threads
from fairlead.loader.base import log
from fairlead.loader.base.log import (
    LEVELS,
    Logger,
    Settings,
    print_pi_trace,
    put,
    read_settings,
    read_trace_bits,
)


def read(text: str, default: str = "quiet") -> Settings:
    return read_settings("TEST", {"UR_LOG_TEST": text}, default)


def test_a_variable_says_level_flush_and_output() -> None:
    got = read("level:info;flush:warning;output:file,/tmp/out.log;fileline:1")
    assert got == Settings(
        LEVELS.index("info"), LEVELS.index("warning"), "file", "/tmp/out.log", True
    )
    assert read("level:debug;output:stdout").output == "stdout"


def test_without_a_variable_a_logger_is_quiet_unless_it_is_said_otherwise() -> None:
    assert read_settings("TEST", {}) == Settings(LEVELS.index("quiet"))
    assert read_settings("TEST", {}, "info") == Settings(LEVELS.index("info"))


@pytest.mark.parametrize(
    "text", [" Level : INFO ; ; output : 'stderr' ;", '"level":"info"', "level:info"]
)
def test_blanks_quotes_and_upper_case_do_no_harm(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(text) == Settings(LEVELS.index("info"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "text",
    [
        "info",
        "level:loud",
        "output:printer",
        "output:file",
        "colour:red",
        "fileline:maybe",
        "level",
    ],
)
def test_a_malformed_variable_is_one_line_and_then_the_defaults(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(text) == Settings(LEVELS.index("quiet"))
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert (
        "UR_LOG_TEST" in err
        and "level:debug|info|warning|error|quiet" in err
        and "output:stdout|stderr|file,<path>" in err
    )


@given(st.text(st.characters(exclude_characters="\0")))
def test_whatever_a_variable_holds_there_are_settings(text: str) -> None:
    assert 0 <= read(text).level < len(LEVELS)


def test_messages_of_the_level_and_above_have_a_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    messages = Logger("LOADER", read("level:warning"))
    for level in ("debug", "info", "warning", "error"):
        getattr(messages, level)(f"it is {level}")
    captured = capsys.readouterr()
    assert captured.err == "<LOADER>[WARNING]: it is warning\n<LOADER>[ERROR]: it is error\n"
    assert captured.out == ""


def test_the_output_is_where_the_variable_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Logger("A", read("level:info;output:stdout;flush:info")).info("to stdout")
    to_file = Logger("B", read(f"level:info;flush:info;output:file,{tmp_path}/b.log"))
    to_file.info("one")
    to_file.info("two")
    assert capsys.readouterr().out == "<A>[INFO]: to stdout\n"
    assert (tmp_path / "b.log").read_text() == "<B>[INFO]: one\n<B>[INFO]: two\n"


def test_a_file_that_cannot_be_written_is_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = Logger("C", read(f"level:info;output:file,{tmp_path}/no/such/folder.log"))
    messages.info("one")
    messages.info("two")
    lines = capsys.readouterr().err.splitlines()
    assert "UR_LOG_C" in lines[0] and "No such file" in lines[0]
    assert lines[1:] == ["<C>[INFO]: one", "<C>[INFO]: two"]


def test_fileline_tells_where_the_message_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    Logger("D", read("level:info;fileline:1")).info("here")
    assert capsys.readouterr().err.startswith("<D>[INFO]: test_log.py:")


def test_write_prints_a_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    messages = Logger("TRACING", read("level:info"))
    messages.write("info", "   ---> urAdapterGet\n")
    messages.write("debug", "no\n")
    assert capsys.readouterr().err == "   ---> urAdapterGet\n"


def test_messages_of_several_threads_stay_whole(tmp_path: Path) -> None:
    messages = Logger("E", read(f"level:info;flush:info;output:file,{tmp_path}/e.log"))
    in_threads(4, lambda n: [messages.info(f"thread {n}") for _ in range(100)])
    lines = (tmp_path / "e.log").read_text().splitlines()
    assert sorted(lines) == sorted(f"<E>[INFO]: thread {n}" for n in range(4) for _ in range(100))


def test_a_logger_reads_its_variable_once(run_python: RunPython) -> None:
    code = (
        "import os\n"
        "from fairlead.loader.base.log import get_logger\n"
        "get_logger('LOADER').info('first')\n"
        "os.environ['UR_LOG_LOADER'] = 'level:quiet'\n"
        "get_logger('LOADER').info('second')\n"
        "get_logger('OTHER').error('nobody asked')\n"
    )
    done = run_python(code, env={"UR_LOG_LOADER": "level:info"})
    assert done.err == "<LOADER>[INFO]: first\n<LOADER>[INFO]: second\n"


def test_in_a_secure_process_the_variables_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.loader.base.search.is_secure_process", lambda: True)
    assert read("level:info;output:file,/etc/passwd") == Settings(LEVELS.index("quiet"))
    assert read_trace_bits("SYCL_PI_TRACE", {"SYCL_PI_TRACE": "-1"}) == 0


@table(
    "text, bits",
    [
        ("1", 1),
        ("2", 2),
        ("-1", -1),
        ("0x01", 1),
        (" 0X3 ", 3),
        ("2calls", 2),
        ("calls", 0),
        ("", 0),
        ("+2", 2),
        ("0", 0),
    ],
)
def test_the_bits_of_a_trace_variable_are_a_number_as_c_reads_it(text: str, bits: int) -> None:
    assert read_trace_bits("SYCL_UR_TRACE", {"SYCL_UR_TRACE": text}) == bits


def test_no_trace_variable_is_no_bit() -> None:
    assert read_trace_bits("SYCL_UR_TRACE", {}) == 0


@pytest.mark.parametrize(
    ("value", "levels"),
    [("1", ["basic"]), ("2", []), ("3", ["basic"]), ("-1", ["basic", "all", "-1"]), ("", [])],
)
def test_pi_messages_appear_by_their_bit(
    value: str, levels: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for level in ("basic", "all", "-1"):
        print_pi_trace(level, "found it", {"SYCL_PI_TRACE": value})
    assert capsys.readouterr().err == "".join(
        f"SYCL_PI_TRACE[{level}]: found it\n" for level in levels
    )


def test_a_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    stream.close()
    put(stream, "text")
    put(None, "text")


def test_the_legal_form_that_is_shown_is_legal() -> None:
    form = log.LEGAL.replace("debug|info|warning|error|quiet", "debug").replace(
        "stdout|stderr|file,<path>", "stderr"
    )
    assert read(form.replace("0|1", "1")) == Settings(0, 0, "stderr", "", True)
