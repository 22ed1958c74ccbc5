"""How much all processes of a data root together ask of a model endpoint."""

from __future__ import annotations

from pydantic import Field

from rag_platform.config.query import Section


class ProviderLimit(Section):
    """A host, or one model there, and what it may be asked; without numbers its calls are counted,
    and left alone together when it asks for that.
    """

    # as in the model's address, with its port if it has one: api.openai.com, localhost:11434
    host: str = Field(pattern=r"^[a-z0-9.:\[\]-]+$")
    model: str = ""  # empty: all models of the host together
    per_minute: int | None = Field(default=None, ge=1)  # requests, evenly spread
    at_once: int | None = Field(default=None, ge=1)  # calls that run

    @property
    def place(self) -> str:
        """The name under which calls are counted."""
        return f"{self.host} {self.model or '*'}"

    def covers(self, host: str, model: str) -> bool:
        """True when calls of the model at the host count here."""
        return host == self.host and self.model in ("", model)


class TrafficSettings(Section):
    """Limits of outside endpoints that hold over processes, and over machines that share a
    ledger.
    """

    # the first one that covers a call counts; none: nothing is limited and nothing counted
    limits: tuple[ProviderLimit, ...] = ()
    # a call waits so long for its turn; a child that embeds is given two minutes for turn and call
    wait_seconds: float = Field(default=60.0, gt=0)
    # a process that has not said for so long that it lives gives back its places
    lease_seconds: float = Field(default=30.0, ge=1)
