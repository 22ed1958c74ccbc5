"""Reads the images of a document with OCR and captions; only views depend on the results.

Results are cached in the image's folder under the profile that made them, so an image is read once,
however many documents contain it. A failure becomes a warning and is not cached, so that the next
build tries again. Failed OCR does not prevent captions.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import replace

from rag_platform.config.ingestion import MediaTextConfig
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import fingerprint
from rag_platform.errors import ProviderError
from rag_platform.intake.isolation import ocr_in_child
from rag_platform.ir import Facts, Json, MediaLink, MediaText
from rag_platform.media.captions import captions
from rag_platform.media.store import display_path, is_page_image
from rag_platform.observability import tracing
from rag_platform.registry import make_provider, provider_version, traits
from rag_platform.storage.records import CACHE_REMEDY, SCHEMA_VERSION
from rag_platform.storage.store import Store, read_json, write_json

OnImage = Callable[[str, int, int], None]


def is_wanted(config: MediaTextConfig) -> bool:
    """True when the strategy wants OCR or captions."""
    return (
        config.ocr.provider != "none"
        or config.captions.provider != "none"
        or bool(config.captions.preset)
    )


def read_images(
    facts: Facts,
    links: Sequence[MediaLink],
    store: Store,
    config: MediaTextConfig,
    on_image: OnImage | None = None,
) -> list[MediaText]:
    """One row for each image that was read, in order, with its warnings.

    `on_image(action, number, total)` reports progress. Images on a page that is itself an image are
    skipped. Raises ConfigError when a provider is not installed.
    """
    images = _choose_images(links)
    read = _read(images, store, config, on_image)
    captioned = captions(facts, images, store, config.captions, on_image) if images else {}
    rows = []
    for link in images:
        text, caption = read.get(link.asset_id), captioned.get(link.asset_id)
        if text and caption:
            rows.append(
                replace(
                    caption,
                    ocr_text=text.ocr_text,
                    ocr_confidence=text.ocr_confidence,
                    ocr_profile_id=text.ocr_profile_id,
                    warnings=(*text.warnings, *caption.warnings),
                )
            )
        elif only := text or caption:
            rows.append(only)
    return rows


def warnings_of(rows: Sequence[MediaText], links: Sequence[MediaLink]) -> tuple[str, ...]:
    """A line for each warning about an image, with its page or reference."""
    places = {
        link.asset_id: f"page {link.page}" if link.page else link.origin_ref[:200]
        for link in reversed(links)
    }
    return tuple(
        f"image on {places.get(row.asset_id, row.asset_id)}: {warning}"
        for row in rows
        for warning in row.warnings
    )


def counts_of(rows: Sequence[MediaText]) -> Json:
    """The numbers of images read, with OCR text, with a caption, and with failures."""
    return {
        "images_looked_at": len(rows),
        "ocr_success": sum(bool(row.ocr_text) for row in rows),
        "caption_success": sum(bool(row.caption) for row in rows),
        "image_text_failures": sum(bool(row.warnings) for row in rows),
    }


def _choose_images(links: Sequence[MediaLink]) -> list[MediaLink]:
    """One link for each stored image; the image of a whole page replaces all images on the page."""
    page_images = {link.page for link in links if link.asset_id and is_page_image(link)}
    kept = [
        link
        for link in links
        if link.asset_id and (is_page_image(link) or link.page not in page_images)
    ]
    kept.sort(key=lambda link: (not is_page_image(link), link.order))
    return list({link.asset_id: link for link in reversed(kept)}.values())[::-1]


# --- OCR ----------------------------------------------------------------------------------------


def ocr_profile(config: ProviderConfig) -> str:
    """The id of an OCR profile: provider, options, and versions of provider and package."""
    package = traits("ocr", config.provider).package
    version = importlib.metadata.version(package) if package else ""
    print_ = fingerprint(
        config.provider,
        dict(config.options),
        provider_version("ocr", config.provider),
        version,
        length=10,
    )
    return f"ocr.{config.provider.rpartition(':')[2]}-{print_}"


def _read(
    images: Sequence[MediaLink], store: Store, config: MediaTextConfig, on_image: OnImage | None
) -> dict[str, MediaText]:
    """The texts of the images that are large enough, by asset_id."""
    name = config.ocr.provider
    if not images:
        return {}
    with tracing.span(
        "stage.ocr",
        provider_type="ocr",
        provider_id=name,
        provider_version=provider_version("ocr", name),
    ) as span:
        if name == "none":
            return {}
        # fails here, once, if something is not installed
        make_provider("ocr", name, config.ocr.options)
        profile = ocr_profile(config.ocr)
        large = [link for link in images if link.width * link.height >= config.ocr_min_pixels]
        found: dict[str, MediaText] = {}
        reused = 0
        for number, link in enumerate(large):
            if number >= config.ocr_max_images_per_doc:
                why = "not read: above media_texts.ocr_max_images_per_doc"
                found[link.asset_id] = MediaText(
                    link.asset_id, ocr_profile_id=profile, warnings=(why,)
                )
                continue
            if on_image:
                on_image("reading", number + 1, len(large))
            reused += store.media_text_path(link.asset_id, profile).is_file()
            found[link.asset_id] = _read_one(link, store, config, profile)
        failed = [
            {"asset_id": asset_id, "error": row.warnings[0][:200]}
            for asset_id, row in found.items()
            if row.warnings
        ]
        span.set(profile_id=profile, images=len(large), reused=reused, failed=len(failed))
        tracing.event(
            "ocr.generated",
            {
                "profile_id": profile,
                "ocr_success": sum(bool(row.ocr_text) for row in found.values()),
                "failed": failed[:50],
            },
        )
    return found


def _read_one(link: MediaLink, store: Store, config: MediaTextConfig, profile: str) -> MediaText:
    """The text of an image: the cached one, else that of the OCR provider."""
    row = MediaText(link.asset_id, ocr_profile_id=profile)
    path = store.media_text_path(link.asset_id, profile)
    if path.is_file():
        kept = read_json(path, CACHE_REMEDY)
    elif (image := display_path(store, link.asset_id)) is None:
        return replace(row, warnings=("not read: it cannot be drawn",))
    else:
        try:
            text, confidence = ocr_in_child(
                image, config.ocr.provider, config.ocr.options, config.ocr_seconds
            )
        except ProviderError as error:
            why = f"OCR failed ({error.code}): {error.message[:200]}"
            return replace(row, warnings=(why,))
        kept = {
            "schema_version": SCHEMA_VERSION,
            "profile_id": profile,
            "asset_id": link.asset_id,
            "text": text,
            "confidence": confidence,
        }
        write_json(path, kept)
    lines = kept["text"].split("\n")[: config.ocr_max_lines or None]
    return replace(row, ocr_text="\n".join(lines), ocr_confidence=kept["confidence"])
