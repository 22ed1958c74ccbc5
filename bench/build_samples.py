"""Writes rag_platform/samples: datasheet.pdf and the pictures; equal input gives equal bytes.

Run it with `python bench/build_samples.py` after a change here, and commit what it wrote. The
Markdown samples are written by hand.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pymupdf

SAMPLES = Path(__file__).resolve().parent.parent / "rag_platform" / "samples"
PAGE = pymupdf.paper_rect("a4")
LEFT, RIGHT, TOP = 72.0, PAGE.x1 - 72.0, 96.0
BLUE, GREY, PALE = (0.12, 0.29, 0.53), (0.45, 0.45, 0.45), (0.91, 0.94, 0.98)

OVERVIEW = [
    (
        "The PX series moves parcels of up to 50 kg over belts of 800 mm width. Every module"
        " carries its own drive, its own controller and two photo eyes, so a line can be extended"
        " by placing another module at its end. Modules find their neighbours over the backplane"
        " and need no address switches."
    ),
    (
        "This data sheet describes the models PX-20, PX-40 and PX-60. Figures hold for a line of"
        " ten modules at 20 degrees Celsius and 400 V three-phase supply unless a note says"
        " otherwise. The optional cold kit for warehouses below the freezing point is described in"
        " section 3."
    ),
]
RATINGS = [
    ["Property", "PX-20", "PX-40", "PX-60"],
    ["Maximum throughput", "6,200 parcels/h", "11,400 parcels/h", "15,800 parcels/h"],
    ["Belt speed", "1.4 m/s", "2.1 m/s", "2.6 m/s"],
    ["Maximum parcel weight", "30 kg", "35 kg", "50 kg"],
    ["Operating temperature", "0 to 40 °C", "-10 to 45 °C", "-10 to 50 °C"],
    ["Rated power", "0.75 kW", "1.1 kW", "1.8 kW"],
    ["Noise at 1 m", "61 dB(A)", "64 dB(A)", "68 dB(A)"],
    ["Protection class", "IP54", "IP54", "IP65"],
]
PARTS = [
    ["Part number", "Description", "Interval"],
    ["88-4410", "Scanner lamp, 5600 K", "6 months"],
    ["88-4502", "Drive belt, 800 mm", "24 months"],
    ["88-4517", "Photo eye, pair", "on failure"],
    ["88-4620", "Cold kit, heater and seals", "36 months"],
]
COLD = [
    (
        "Below -10 degrees Celsius the grease of the drum motor stiffens and the rated torque is no"
        " longer reached. The cold kit 88-4620 adds a 40 W heater to each drum and seals made of"
        " silicone; a PX-40 with the cold kit runs down to -28 degrees Celsius."
    ),
    (
        "After a cold start the controller keeps the belt at a quarter of its speed for twelve"
        " minutes. This warm-up cannot be skipped from the console. Condensation must be able to"
        " drain, so the module is mounted with a tilt of at least two degrees."
    ),
]
CHINESE_TITLE = "4 中文摘要"
CHINESE = [
    (
        "PX-40 型皮带模块的额定功率为 1.1 千瓦，防护等级为 IP54，适用于单件重量不超过 35"
        " 千克的包裹。每个模块都有独立的驱动器、控制器和"
        "两个光电传感器，相邻模块通过背板自动识别，不需要拨码。"
    ),
    (
        "安装冷库套件之后，PX-40 可以在零下 28 摄氏度的环境中运行。"
        "冷启动后皮带以四分之一的速度运行十二分钟，预热过程不能跳过。冷凝水必"
        "须能够排出，因此模块的安装倾角不得小于两度。"
    ),
]


def diagram(labels: list[str], width: int = 480, height: int = 150) -> bytes:
    """A PNG of labelled boxes joined by arrows, drawn from left to right."""
    document = pymupdf.open()
    page = document.new_page(width=width, height=height)
    page.draw_rect(page.rect, color=None, fill=(1, 1, 1))
    gap, box = 24.0, (width - 24.0 * (len(labels) + 1)) / len(labels)
    for position, label in enumerate(labels):
        left = gap + position * (box + gap)
        rect = pymupdf.Rect(left, height / 2 - 26, left + box, height / 2 + 26)
        page.draw_rect(rect, color=BLUE, fill=PALE, width=1.4)
        page.insert_textbox(
            pymupdf.Rect(rect.x0 + 2, rect.y0 + 18, rect.x1 - 2, rect.y1),
            label,
            fontsize=11,
            align=1,
            color=BLUE,
        )
        if position:
            page.draw_line(
                (left - gap + 2, height / 2), (left - 4, height / 2), color=GREY, width=1.6
            )
            page.draw_polyline(
                [(left - 10, height / 2 - 4), (left - 3, height / 2), (left - 10, height / 2 + 4)],
                color=GREY,
                width=1.6,
            )
    return bytes(page.get_pixmap(dpi=96).tobytes("png"))


def chart(width: int = 420, height: int = 190) -> bytes:
    """A PNG bar chart of the power drawn at four loads; its figures stand nowhere as text."""
    document = pymupdf.open()
    page = document.new_page(width=width, height=height)
    page.draw_rect(page.rect, color=None, fill=(1, 1, 1))
    for position, (label, watts) in enumerate(
        [("idle", 140), ("25 %", 420), ("50 %", 690), ("100 %", 1080)]
    ):
        left, top = 50 + position * 90, height - 34 - watts / 8.5
        page.draw_rect(pymupdf.Rect(left, top, left + 54, height - 34), color=BLUE, fill=PALE)
        page.insert_text((left + 8, height - 18), label, fontsize=11)
        page.insert_text((left + 6, top - 5), f"{watts} W", fontsize=11)
    page.draw_line((36, height - 34), (width - 20, height - 34), color=GREY)
    return bytes(page.get_pixmap(dpi=96).tobytes("png"))


def furniture(page: pymupdf.Page, number: int, pages: int) -> None:
    """Draw the running header and the page number."""
    page.insert_text(
        (LEFT, 48), "Pegasus PX series - data sheet DS-7714, revision C", fontsize=8, color=GREY
    )
    page.draw_line((LEFT, 54), (RIGHT, 54), color=GREY, width=0.5)
    page.insert_text(
        (RIGHT - 60, PAGE.y1 - 40), f"Page {number} of {pages}", fontsize=8, color=GREY
    )


def heading(page: pymupdf.Page, y: float, text: str, size: float) -> float:
    """Draw a bold heading; returns where the next line starts."""
    page.insert_text((LEFT, y + size), text, fontname="hebo", fontsize=size, color=BLUE)
    return y + size + 12


def paragraphs(page: pymupdf.Page, y: float, texts: list[str]) -> float:
    """Draw paragraphs below each other; returns where the next line starts."""
    for text in texts:
        spare = page.insert_textbox(
            pymupdf.Rect(LEFT, y, RIGHT, y + 300), text, fontsize=10.5, lineheight=1.35
        )
        y += 300 - spare + 9
    return y


def table(page: pymupdf.Page, y: float, rows: list[list[str]], widths: list[float]) -> float:
    """Draw a ruled table; returns where the next line starts."""
    for index, row in enumerate(rows):
        left = LEFT
        for text, width in zip(row, widths, strict=True):
            cell = pymupdf.Rect(left, y, left + width, y + 22)
            page.draw_rect(cell, color=GREY, fill=PALE if index == 0 else None, width=0.7)
            page.insert_text(
                (left + 5, y + 15), text, fontname="hebo" if index == 0 else "helv", fontsize=9.5
            )
            left += width
        y += 22
    return y + 16


def wrapped(text: str, font: pymupdf.Font, size: float, width: float) -> list[str]:
    """The text cut into lines that fit the width; Chinese may break between any two characters."""
    lines = [""]
    for char in text:
        if font.text_length(lines[-1] + char, fontsize=size) > width and char not in "，。、":
            lines.append("")
        lines[-1] += char
    return lines


def picture(page: pymupdf.Page, y: float, png: bytes, height: float, caption: str) -> float:
    """Place a picture with its caption; returns where the next line starts."""
    page.insert_image(pymupdf.Rect(LEFT, y, RIGHT, y + height), stream=png)
    page.insert_text((LEFT, y + height + 14), caption, fontname="heit", fontsize=9, color=GREY)
    return y + height + 34


def datasheet() -> bytes:
    """The bytes of datasheet.pdf: four pages, two ruled tables, two pictures, one page with an
    embedded Chinese font.
    """
    document = pymupdf.open()
    for _ in range(4):
        document.new_page(width=PAGE.width, height=PAGE.height)
    first, second, third, fourth = (document[number] for number in range(4))
    for number, page in enumerate((first, second, third, fourth), 1):
        furniture(page, number, 4)

    y = heading(first, TOP, "Pegasus PX series data sheet", 22)
    y = heading(first, y + 8, "1 Overview", 15)
    y = paragraphs(first, y, OVERVIEW)
    picture(
        first,
        y + 4,
        diagram(["Infeed", "Scanner", "Switch", "Chute"]),
        140,
        "Figure 1: modules of a line, from infeed to chute",
    )

    y = heading(second, TOP, "2 Technical data", 15)
    y = heading(second, y, "2.1 Ratings", 12)
    y = table(second, y, RATINGS, [141, 103, 103, 104])
    y = heading(second, y, "2.2 Spare parts", 12)
    y = table(second, y, PARTS, [110, 221, 120])
    paragraphs(
        second,
        y,
        [
            "Part numbers are printed on the inside of the maintenance hatch. Order drive belts in"
            " pairs."
        ],
    )

    y = heading(third, TOP, "3 Use in cold stores", 15)
    y = paragraphs(third, y, COLD)
    picture(third, y + 4, chart(), 190, "Figure 2: power drawn by a PX-40 at four loads")

    font = pymupdf.Font("cjk")
    writer = pymupdf.TextWriter(fourth.rect)
    writer.append((LEFT, TOP + 15), CHINESE_TITLE, font=font, fontsize=15)
    y = TOP + 48
    for text in CHINESE:
        for line in wrapped(text, font, 10.5, RIGHT - LEFT):
            writer.append((LEFT, y), line, font=font, fontsize=10.5)
            y += 17
        y += 8
    writer.write_text(fourth)

    document.set_toc(
        [
            [1, "Pegasus PX series data sheet", 1],
            [2, "1 Overview", 1],
            [2, "2 Technical data", 2],
            [3, "2.1 Ratings", 2],
            [3, "2.2 Spare parts", 2],
            [2, "3 Use in cold stores", 3],
            [2, CHINESE_TITLE, 4],
        ]
    )
    document.set_metadata(
        {
            "title": "Pegasus PX series data sheet",
            "author": "Pegasus documentation",
            "producer": "build_samples",
            "creationDate": "D:20250318090000Z",
            "modDate": "D:20250318090000Z",
        }
    )
    document.subset_fonts()
    return bytes(document.tobytes(garbage=4, deflate=True, no_new_id=True))


def main() -> None:
    """Write every generated sample."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    (SAMPLES / "images").mkdir(parents=True, exist_ok=True)
    (SAMPLES / "images" / "parcel-flow.png").write_bytes(
        diagram(["Label", "Scanner", "Router", "Switch", "Chute"], width=560)
    )
    (SAMPLES / "datasheet.pdf").write_bytes(datasheet())


if __name__ == "__main__":
    main()
