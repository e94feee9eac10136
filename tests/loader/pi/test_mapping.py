"""The tables of PI's translation: every slot, constant and result."""

from __future__ import annotations

import inspect

from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.pi import mapping as pi_mapping
from fairlead.loader.pi import translation
from fairlead.loader.pi.abi import PI
from fairlead.loader.pi.mapping import ALL_ENUMS, FUNCTIONS, RESULTS
from fairlead.loader.pi.serve import UNSUPPORTED, MappedCall
from fairlead.loader.ur.abi import UR


def test_every_slot_is_translated_or_listed_as_unsupported() -> None:
    translated = {*FUNCTIONS, *translation.FUNCTIONS}
    assert translated | set(UNSUPPORTED) == {function.name for function in PI.slots}
    assert not translated & set(UNSUPPORTED)
    assert not set(FUNCTIONS) & set(translation.FUNCTIONS)
    assert all(reason for reason in UNSUPPORTED.values())


@table("name", FUNCTIONS)
def test_every_line_names_a_function_of_ur_and_gives_it_all_its_arguments(name: str) -> None:
    call = MappedCall(PI.functions[name], FUNCTIONS[name])
    assert len(call.makers) == len(call.ur.parameters)


@table("name", translation.FUNCTIONS)
def test_every_function_that_is_written_out_takes_the_arguments_of_its_slot(name: str) -> None:
    words = [0] * len(PI.functions[name].parameters)
    inspect.signature(translation.FUNCTIONS[name]).bind(None, *words)


@table("enum", ALL_ENUMS)
def test_every_constant_of_pi_is_converted_or_listed(enum: pi_mapping.Enum) -> None:
    answered = {
        PI.groups[enum.pi][value] for value in enum.answers.values() if value in PI.groups[enum.pi]
    }
    known = {*enum.constants, *enum.missing, *enum.fixed, *answered}
    assert {
        constant.name for constant in PI.constants.values() if constant.group == enum.pi
    } <= known
    assert {constant.group for constant in enum.constants.values()} == {enum.ur}


@table("enum", [enum for enum in ALL_ENUMS if not enum.bits])
def test_what_ur_answers_is_what_it_was_asked_with(enum: pi_mapping.Enum) -> None:
    for there in enum.values.values():
        assert enum.convert_to_ur(enum.convert_to_pi(there)) == there


@given(
    st.sampled_from(
        [enum for enum in ALL_ENUMS if enum.bits and enum.pi not in ("pi_mem_advice",)]
    ),
    st.data(),
)
def test_bits_go_to_ur_and_back_one_by_one(enum: pi_mapping.Enum, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from([value for value in enum.values if value])))
    value = sum(chosen)
    assert enum.convert_to_pi(enum.convert_to_ur(value)) == value


def test_every_result_of_ur_has_one_of_pi() -> None:
    assert set(RESULTS) == set(UR.errors)
    assert RESULTS[0] == 0
    assert all(code < 0 for value, code in RESULTS.items() if value)
    assert pi_mapping.convert_result(0x7FFFFFF0) == PI.codes["PI_ERROR_UNKNOWN"]
