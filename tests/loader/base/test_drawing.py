"""Drawings of graphs: what repeats is one box, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.drawing import MOST_BOXES, DrawnNode, draw_graph, format_table


def chain(texts: Sequence[str], start: int = 0) -> list[DrawnNode]:
    """Nodes one after the other."""
    return [(start + n, text, [start + n + 1]) for n, text in enumerate(texts)]


def titles(nodes: Sequence[DrawnNode], groups: Sequence[Sequence[int]] = ()) -> list[str]:
    """What each box says."""
    picture = ElementTree.fromstring(draw_graph(nodes, groups))
    return [one.text or "" for one in picture.iter() if one.tag.endswith("title")]


def test_a_chain_that_repeats_is_one_box() -> None:
    texts = ["load", *["collide", "stream", "macro"] * 40, "save", "save"]
    assert titles(chain(texts)) == [
        "0: load",
        "1–120: collide → stream → macro, 40 ×\nafter 0",
        "121: save\nafter 1–120",
        "122: save\nafter 121",
    ]


def test_an_edge_that_a_longer_way_implies_is_left_out() -> None:
    """Operations of `pyopencl.array` wait for each event that their arrays know."""
    texts = ["sub", "scale", "mul", "add"] * 40
    nodes = [
        (n, text, [n + 1, *range(n + 4, len(texts), 4)] if text == "add" else [n + 1, n + 3])
        for n, text in enumerate(texts)
    ]
    assert titles(nodes) == ["0–159: sub → scale → mul → add, 40 ×"]
    circle = [(0, "a", [1, 2]), (1, "b", [0, 2]), (2, "c", [3]), (3, "d", [])]
    assert titles(circle)[-2:] == ["2: c\nafter 0, 1", "3: d\nafter 2"], "nothing implies these"


def test_equal_nodes_side_by_side_are_one_box() -> None:
    nodes: list[DrawnNode] = [(0, "split", range(1, 9))]
    nodes += [(n, "add", [9]) for n in range(1, 9)]
    nodes.append((9, "join", []))
    assert titles(nodes) == [
        "0: split",
        "1–8: add, 8 × side by side\nafter 0",
        "9: join\nafter 1–8",
    ]
    assert titles([(n, "add", []) for n in range(0, 8, 2)]) == ["0 … 6: add, 4 × side by side"]


def test_steps_that_fork_and_join_are_one_box() -> None:
    nodes: list[DrawnNode] = []
    for start in range(0, 60, 6):
        nodes.append((start, "split", range(start + 1, start + 5)))
        nodes += [(start + n, "add", [start + 5]) for n in range(1, 5)]
        nodes.append((start + 5, "join", [start + 6]))
    assert titles(nodes) == ["0–59: split → (add, 4 × side by side) → join, 10 ×"]


def test_a_group_is_one_box() -> None:
    fused = titles(chain(["add", "mul", "sub"]), [(0, 1)])
    assert fused == ["0–1: one fused kernel: add + mul", "2: sub\nafter 0–1"]
    assert titles(chain(["add", "mul"] * 4), [(n, n + 1) for n in range(0, 8, 2)]) == [
        "0–7: one fused kernel: add + mul, 4 ×"
    ]


def test_boxes_of_a_row_have_their_own_places() -> None:
    nodes: list[DrawnNode] = [(n, f"kernel {n}", [9]) for n in range(9)]
    picture = draw_graph([*nodes, (9, "end", [])])
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="(\d+)"', picture)
    places = [(float(x), float(y), float(width)) for x, y, width in found]
    row = [place for place in places if place[1] == places[0][1]]
    assert len(row) == 9 and len(places) == 10
    assert all(x + width < after for (x, _, width), (after, _, _) in pairwise(row))
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', picture)
    assert size and max(x + width for x, _, width in places) <= float(size[1])
    assert max(y for _, y, _ in places) + 26 <= float(size[2])


def test_a_picture_has_the_colors_of_the_text_around_it() -> None:
    """So it is light or dark as a notebook is. As a file it has colors for both."""
    inside, alone = draw_graph(chain("ab")), draw_graph(chain("ab"), alone=True)
    assert "#" not in inside and 'stroke="currentColor"' in inside
    assert "prefers-color-scheme:dark" in alone


def test_long_texts_are_cut_and_markup_is_text() -> None:
    text = "a<b>" * 40
    picture = draw_graph(chain([text] * 8))
    assert titles(chain([text])) == [f"0: {text}"]
    (shown,) = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    assert shown.endswith("…, 8 ×") and "<" not in shown


def test_what_is_left_out_is_said() -> None:
    picture = draw_graph(chain([f"kernel {n}" for n in range(MOST_BOXES + 7)]))
    assert picture.count("<rect") == MOST_BOXES and "and 7 more nodes" in picture


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 12), max_size=3)), max_size=12
    )
)
def test_every_graph_is_drawn_with_all_its_nodes(given: list[tuple[str, list[int]]]) -> None:
    """Also circles, edges to themselves, and edges to nodes that are not there."""
    boxes = titles([(n, text, after) for n, (text, after) in enumerate(given)])
    count = 0
    for box in boxes:
        text = box.partition("\n")[0].partition(": ")[2]
        names = len(re.findall(r"\b[ab]\b", text))
        factors = [int(one) for one in re.findall(r"(\d+) ×", text)]
        if "(" not in text:
            for one in factors:
                names *= one
            count += names
    assert count == len(given) or any("(" in box for box in boxes)


def test_a_table_escapes_its_cells() -> None:
    assert format_table(["<a>", "b"], [[1, "<2>"]]) == (
        "<table>\n<tr><th>&lt;a&gt;</th><th>b</th></tr>\n"
        "<tr><td>1</td><td>&lt;2&gt;</td></tr>\n</table>"
    )
