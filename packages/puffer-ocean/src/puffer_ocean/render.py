"""Pictures of environments as text, and in a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
_HALF_BLOCK = "\u2580"


def ansi(picture: Picture, max_columns: int = 80) -> str:
    """Return an RGB picture, uint8 (height, width, 3), as text of upper half blocks in 24-bit colour.

    A character shows two pixels, one above the other; the picture is sampled down to max_columns characters a line.
    """
    height, width, _ = picture.shape
    columns = min(width, max_columns)
    rows = max(2, 2 * round(height * columns / width / 2))
    ys = (2 * np.arange(rows) + 1) * height // (2 * rows)
    xs = (2 * np.arange(columns) + 1) * width // (2 * columns)
    pixels = picture[ys][:, xs].tolist()
    lines = []
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        cells, last = [], None
        for top, bottom in zip(upper, lower, strict=True):
            if (top, bottom) != last:
                cells.append("\x1b[38;2;{};{};{}m\x1b[48;2;{};{};{}m".format(*top, *bottom))
                last = (top, bottom)
            cells.append(_HALF_BLOCK)
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


class Window:
    """A window that shows pictures; needs pygame, which is imported when the first picture is shown.

    Attributes:
        is_closed: Whether the user closed the window. Further pictures are ignored then.
    """

    def __init__(self, title: str, fps: int) -> None:
        try:
            import pygame
        except ImportError as error:
            raise ImportError(
                'render_mode="human" needs pygame, which is not installed. '
                "Install it: pip install pygame-ce (or puffer-ocean[human])."
            ) from error
        self._pygame: Any = pygame
        self._title = title
        self._fps = fps
        self._screen: Any = None
        self._clock: Any = None
        self.is_closed = False

    def show(self, picture: Picture) -> None:
        """Show an RGB picture, uint8 (height, width, 3), and wait until its time is over."""
        pygame = self._pygame
        if self.is_closed:
            return
        if self._screen is None:
            pygame.display.init()
            self._screen = pygame.display.set_mode((picture.shape[1], picture.shape[0]))
            pygame.display.set_caption(self._title)
            self._clock = pygame.time.Clock()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            return
        pygame.surfarray.blit_array(self._screen, picture.swapaxes(0, 1))
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Close the window. It may be called twice."""
        if self._screen is not None:
            self._pygame.display.quit()
        self._screen = None
        self.is_closed = True
