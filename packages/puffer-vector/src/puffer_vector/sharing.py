"""Whether a step is worth sharing with other threads: measured, not guessed."""

from __future__ import annotations

PROBE_BURST = 4
"""Consecutive tries of the way that is slower so far; the first of them pays for waking threads."""
PROBE_SHARE = 50
"""The tries take at most 1/50 of the time."""
PROBE_MIN_CALLS = 200
ALONE_BELOW_S = 3e-6
"""Work this small is never shared."""


class Sharing:
    """Chooses between stepping alone and sharing by the times that both took, and looks again now and then."""

    def __init__(self) -> None:
        self._times_s = {False: 0.0, True: 0.0}
        self._probes_left = 0
        self._calls_to_probe = 0

    def choose(self) -> bool:
        """Return whether the next step is shared."""
        alone_s, shared_s = self._times_s[False], self._times_s[True]
        if alone_s < ALONE_BELOW_S:  # also when nothing was measured yet
            return False
        best = 0.0 < shared_s < alone_s
        if self._probes_left:
            self._probes_left -= 1
            return not best
        if self._calls_to_probe:
            self._calls_to_probe -= 1
            return best
        good_s, other_s = self._times_s[best], self._times_s[not best]
        cost_s = max((other_s or 2 * good_s) - good_s, 0.0)
        self._calls_to_probe = max(PROBE_MIN_CALLS, int(PROBE_BURST * PROBE_SHARE * cost_s / good_s))
        self._probes_left = PROBE_BURST
        return best

    def measured(self, shared: bool, seconds: float) -> None:
        """Note how long a step took."""
        usual = self._times_s[shared]
        if usual == 0.0:
            self._times_s[shared] = seconds
        elif seconds < usual:
            self._times_s[shared] = usual + (seconds - usual) / 2
        else:  # a step during which the thread was interrupted counts little
            self._times_s[shared] = usual + (min(seconds, 2 * usual) - usual) / 8
