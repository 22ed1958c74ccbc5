"""Where machines that share a library keep its files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rag_platform.config.query import Section


class BlobSettings(Section):
    """The object store beside the data root; `local` is none: the data root is the store."""

    provider: Literal["local", "s3"] = "local"
    bucket: str = ""
    # before every key, so that several libraries fit into one bucket
    prefix: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)*)?$")
    # between two looks of a server at what is published there
    poll_seconds: float = Field(default=5.0, gt=0)
    # a server that has not said for so long that it lives is called gone
    silent_seconds: float = Field(default=300.0, ge=30)
    # a hard deletion waits so long for the servers that live
    acknowledge_seconds: float = Field(default=60.0, ge=0)

    @model_validator(mode="after")
    def _names_a_bucket(self) -> BlobSettings:
        if self.provider != "local" and not self.bucket:
            raise ValueError("blobs.bucket is empty; name the bucket (RAG_BLOBS__BUCKET)")
        return self
