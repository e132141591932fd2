"""The exceptions a caller of any puffer package may want to catch."""

from __future__ import annotations

from collections.abc import Sequence


class PufferError(Exception):
    """Base of every exception class of the puffer packages.

    Plain mistakes in arguments raise ValueError or TypeError, and a call at the wrong time RuntimeError; only
    what a caller may want to tell apart has a class of its own, and that class also derives from one of these.
    """


class UnknownEnvError(PufferError, ValueError):
    """No registered environment has the id that was asked for.

    Attributes:
        env_id: The id that was asked for.
        near: Registered ids that look like it, best first.
        remarks: Sentences about packages whose environments could not be read.
    """

    def __init__(self, env_id: str, near: Sequence[str] = (), remarks: Sequence[str] = ()) -> None:
        self.env_id = env_id
        self.near = tuple(near)
        self.remarks = tuple(remarks)
        hint = f"Did you mean {' or '.join(self.near)}?" if near else "env_ids() lists all of them."
        super().__init__(" ".join([f"environment id must be a registered one; got {env_id!r}. {hint}", *remarks]))

    def __reduce__(self) -> tuple[type[UnknownEnvError], tuple[str, tuple[str, ...], tuple[str, ...]]]:
        return type(self), (self.env_id, self.near, self.remarks)


class MissingAdapter(PufferError, TypeError):  # noqa: N818 - the name is part of the public face
    """An object is no PufferEnv, and no installed package knows how to make one of it."""


class MissingSuite(PufferError, ImportError):  # noqa: N818 - the name is part of the public face
    """An environment needs a third-party package that is not installed or not usable here."""


class CheckError(PufferError, AssertionError):
    """`check_env` found that an environment breaks the contract. The message has every finding."""
