"""Render modes: which there are, and the window. What pictures show is in test_acceptance.py and test_canvas.py."""

from __future__ import annotations

import sys
import types

import pytest

from puffer_ocean import OceanEnv


@pytest.mark.parametrize("render_mode", ["rgb", "rgb-array", 3])
def test_a_bad_render_mode_is_refused(render_mode):
    with pytest.raises(ValueError, match="render_mode must be None, rgb_array, ansi or human"):
        OceanEnv("squared", render_mode=render_mode)


def test_a_world_that_does_not_exist_cannot_be_drawn():
    env = OceanEnv("squared", 2, render_mode="rgb_array")
    env.reset(0)
    for world in (2, -1, 2**70, 0.5, None):
        with pytest.raises((ValueError, TypeError), match=r"world must be an integer in \[0, 1\]; got"):
            env.render(world=world)


def test_a_window_shows_pictures_until_it_is_closed(monkeypatch):
    shown, events = [], []
    pygame = types.ModuleType("pygame")
    pygame.QUIT = 256
    pygame.event = types.SimpleNamespace(get=lambda: events)
    pygame.surfarray = types.SimpleNamespace(blit_array=lambda screen, picture: shown.append(picture.shape))
    pygame.time = types.SimpleNamespace(Clock=lambda: types.SimpleNamespace(tick=lambda fps: None))
    pygame.display = types.SimpleNamespace(
        init=lambda: None,
        set_mode=lambda size: size,
        set_caption=lambda text: None,
        flip=lambda: None,
        quit=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "pygame", pygame)
    env = OceanEnv("cartpole", render_mode="human")
    env.reset(0)
    for _ in range(3):
        assert env.render() is None
    events.append(types.SimpleNamespace(type=pygame.QUIT))
    env.render()
    events.clear()
    env.render()
    env.close()

    assert shown == [(480, 240, 3)] * 3
    assert env._window.is_closed


def test_a_window_without_pygame_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = OceanEnv("cartpole", render_mode="human")
    env.reset(0)
    with pytest.raises(ImportError, match="pip install pygame-ce"):
        env.render()
