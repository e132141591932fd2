"""Drawing: which pixels a shape covers, and that nothing is written outside of the image."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_ocean.render import ansi

INK = 0xFF8001
FLOATS = st.floats(-1e9, 1e9, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])


class Canvas(ctypes.Structure):
    _fields_ = (("width", ctypes.c_int), ("height", ctypes.c_int), ("pixels", ctypes.c_void_p))


@pytest.fixture(scope="module")
def library(compiled):
    return compiled(Path(__file__).parents[1] / "src" / "puffer_ocean" / "core" / "canvas.c")


class Sheet:
    """An image with a margin around its memory, where nothing may be drawn."""

    def __init__(self, library, width, height):
        self.library = library
        self.memory = np.zeros(3 * width * height + 128, np.uint8)
        self.image = self.memory[64:-64].reshape(height, width, 3)
        self.canvas = Canvas(width, height, self.image.ctypes.data)

    def draw(self, shape, *numbers, color=INK):
        arguments = [ctypes.c_float(number) for number in numbers]
        getattr(self.library, f"oc_{shape}")(ctypes.byref(self.canvas), *arguments, ctypes.c_uint32(color))
        return self

    @property
    def covered(self):
        return self.image.any(axis=2)


@pytest.fixture
def sheet(library):
    return lambda width=20, height=10: Sheet(library, width, height)


def test_clear_fills_with_the_colour(sheet):
    image = sheet().draw("clear").image

    assert (image == (0xFF, 0x80, 0x01)).all()


def test_rect_covers_the_pixels_whose_centres_are_inside(sheet):
    covered = sheet().draw("rect", 2.5, 1, 3, 2.4).covered

    wanted = np.zeros((10, 20), bool)
    wanted[1:3, 2:5] = True
    np.testing.assert_array_equal(covered, wanted)


@pytest.mark.parametrize(("x", "y", "radius"), [(8, 5, 3.2), (0, 0, 4), (30, 5, 3), (7.5, 4.5, 0.4)])
def test_circle_covers_the_pixels_whose_centres_are_inside(sheet, x, y, radius):
    covered = sheet().draw("circle", x, y, radius).covered

    ys, xs = np.mgrid[0:10, 0:20] + 0.5
    np.testing.assert_array_equal(covered, np.hypot(xs - x, ys - y) < radius)


def test_triangle_covers_half_of_its_box(sheet):
    covered = sheet(100, 100).draw("triangle", 0, 0, 100, 0, 0, 100).covered

    ys, xs = np.mgrid[0:100, 0:100] + 0.5
    np.testing.assert_array_equal(covered, xs + ys < 100)


def test_line_is_as_thick_as_asked(sheet):
    covered = sheet(40, 40).draw("line", 5, 20, 35, 20, 4).covered

    assert covered[:, 20].sum() == 4
    assert covered[20, 3:37].all()
    assert covered[18:22].sum() == covered.sum()


@settings(max_examples=200, deadline=None)
@given(shape=st.sampled_from([("rect", 4), ("circle", 3), ("triangle", 6), ("line", 5)]), data=st.data())
def test_nothing_is_drawn_outside(library, shape, data):
    sheet = Sheet(library, 13, 7)
    sheet.draw(shape[0], *(data.draw(FLOATS) for _ in range(shape[1])))

    assert not sheet.memory[:64].any()
    assert not sheet.memory[-64:].any()


def test_text_draws_letters_and_lines(library):
    sheet = Sheet(library, 40, 20)
    library.oc_text(ctypes.byref(sheet.canvas), 1, 1, 1, INK, b"I%d\nl", ctypes.c_int(1))
    rows = ["".join(" #"[pixel] for pixel in row) for row in sheet.covered[1:17, 1:13].astype(int)]

    assert rows[0] == " ###    #   "
    assert rows[6] == " ###  ##### "
    assert rows[8] == "#           "
    assert rows[14] == "#####       "


def test_letters_differ(library):
    pictures = set()
    for letter in range(33, 96):
        sheet = Sheet(library, 6, 8)
        text = b"%%" if letter == ord("%") else bytes([letter])
        library.oc_text(ctypes.byref(sheet.canvas), 0, 0, 1, INK, text)
        pictures.add(sheet.image.tobytes())

    assert len(pictures) == 63


def test_ansi_shows_two_pixels_a_character():
    picture = np.zeros((4, 3, 3), np.uint8)
    picture[0] = 255
    picture[3, 1] = (1, 2, 3)

    lines = ansi(picture).split("\n")

    assert lines[0] == "\x1b[38;2;255;255;255m\x1b[48;2;0;0;0m▀▀▀\x1b[0m"
    assert lines[1].count("▀") == 3
    assert "\x1b[48;2;1;2;3m" in lines[1]


def test_ansi_samples_a_large_picture_down():
    lines = ansi(np.zeros((300, 600, 3), np.uint8), max_columns=50).split("\n")

    assert [line.count("▀") for line in lines] == [50] * 12
