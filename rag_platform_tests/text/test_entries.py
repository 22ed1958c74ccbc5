from __future__ import annotations

import time

import pytest

from rag_platform.ir import JOINT
from rag_platform.text.entries import (
    find_described,
    find_entry_lines,
    find_entry_names,
    find_members,
    find_row_name,
    is_asked,
    is_titled,
)


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("`work_mem` (`integer`)", "work_mem"),
        ("access_code (default: 450)", "access_code"),
        ("`-p port`", "-p port"),
        ("json.dump(obj, fp, *, skipkeys=False)", "json.dump"),
        ("log_level <level>", "log_level"),
        ("`host` {#opt-host}", "host"),
        ("`Admin.get_max_num(request, obj=None)`", "Admin.get_max_num()"),
        ("filter(*args, key=str(a))", "filter()"),
        ("@change(item, index)", "change()"),
        ("get(a) and set(b, c)", ""),
        ("`pub const fn open<T>(&self, by: T) -> Lid`", "open"),
        ("[static] Lid *io::Jar::open(const char *by) const", "io::Jar::open"),
        ("io::Jar::~Jar()", "io::Jar::~Jar"),
        ("`#open?(by = nil) ⇒ Lid`", "open?"),
        (".lids ⇒ Array<Lid> (readonly)", "lids"),
        ("See io::Jar::open(by) first", ""),
        (".NET (Core)", ""),
        ("Function openLid<T>", "openLid"),
        ("Macro jar::open_lid", "jar::open_lid"),
        ("Function overview", ""),
        ("`open(path, mode)` and more", ""),
        ("`open(path)`", "open()"),
        ("`static Jar.open(by, *, to=None, **tools) → Lid`", "Jar.open"),
        ("`class io.Jar(size: int = 1)`", "io.Jar"),
        ("`property Jar.size: int | None`", "Jar.size"),
        ("`Jar.lids = ()`", "Jar.lids"),
        ("`Lid *open(const char *by)`", "open"),
        ("class diagram (draft)", ""),
        ("`for item in jars:`", ""),
        ("Node.js: setup", ""),
        ("`gc.auto`, `gc.<name>.auto` (integer)", "gc.auto, gc.<name>.auto"),
        ("`open_lid()`, and more", ""),
        ("Memory (RAM)", ""),
        ("20.4.1. Memory", ""),
        ("Node.js setup", ""),
    ],
)
def test_the_name_in_a_heading(heading: str, name: str) -> None:
    assert find_described(heading) == name


def test_the_lines_that_name_what_a_text_describes() -> None:
    text = (
        "# Guide\n\n**Ports**:\n\nIn **bold** words.\n\n### `speed`\n\n**Stop now.**\n\n**a** (b)"
        "\n\n**`open(**tools)`**"
    )
    assert find_entry_lines(text) == ["**Ports**:", "### `speed`", "**`open(**tools)`**"]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("| `ink-size` | Number |", "ink-size"),
        ("v-model | any", "v-model"),
        ("|**@change(item, index)**| fired |", "change"),
        ("| cache.enable? | true |", ""),
        ("| two words | true |", ""),
        ("| 颜色 | red |", ""),
    ],
)
def test_the_name_that_begins_a_row(row: str, name: str) -> None:
    assert find_row_name(row) == name


def test_a_long_heading_takes_little_time() -> None:
    started = time.process_time()
    assert [find_described(f"a{gap}b") for gap in (" " * 20_000, "*" * 20_000)] == ["", ""]
    assert [find_described(it * 10_000) for it in ("a(", "a::", "(a::b(", "fn ")] == [""] * 4
    assert all(find_described(f"`{it * 10_000}`") in ("static", "") for it in ("*a ", "static "))
    assert find_members(["Class A" + ":" * 20_000, "b:" * 20_000, "b Class " * 5_000]) == []
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("path", "text", "members"),
    [
        (["Class Jar<T>", "Method Detail"], "### open\n\n### size()", ["Jar.open", "Jar.size"]),
        (["io::Jar Class Template Reference", "~Jar() [1/2]"], "", ["io::Jar::~Jar"]),
        (["Enum Class Jar.Lid", "Field Detail"], "#### MAX\\_SIZE", ["Jar.Lid.MAX_SIZE"]),
        (["Struct io::Jar", "All methods"], "### Where to begin", []),
        (["Class diagram", "Overview"], "", []),
        (["Struct io::Jar", "pub fn open(&self)"], "##### Panics", ["io::Jar::open"]),
        (["Jar Class"], "### `Lid io::Jar::open(int by)`", ["io::Jar::open"]),
        (["Class: Io::Jar", "Methods"], "### `#open ⇒ Lid`", ["Io::Jar::Methods", "Io::Jar#open"]),
        (["Class Jar", "`Static` open", "Readonly size"], "", ["Jar.open", "Jar.size"]),
    ],
)
def test_members_have_the_name_of_the_class_above_them(
    path: list[str], text: str, members: list[str]
) -> None:
    assert find_members(path, text) == members


def test_members_are_also_named_without_what_their_class_is_in() -> None:
    path = JOINT.join(["io::Jar Class Reference", "open()"])
    assert find_entry_names(path, "**size**\n\nAll.") == ["**size**", "io::Jar::open", "Jar::open"]
    path = JOINT.join(["Class: Io::Jar", "#open ⇒ Lid"])
    assert find_entry_names(path, "") == ["Io::Jar#open", "Jar#open"]


@pytest.mark.parametrize(
    "title",
    [
        "#### How do I open jars?",
        "**Q: How can I open a jar?**",
        "Q: how to open a jar?",
        "# Open jars",
    ],
)
def test_a_passage_is_titled_with_a_question(title: str) -> None:
    assert is_titled("How do I open a jar?", "", f"Jars.\n\n{title}\n\nTwist.")
    assert not is_titled("How do I open a red jar?", "", f"Jars.\n\n{title}\n\nTwist.")
    assert not is_titled("How do I open a jar?", "", "How do I open a jar?")


def test_a_box_or_section_may_be_titled_with_a_question() -> None:
    box = "<details>\n<summary>怎么开罐？</summary>\n\n拧。\n</details>"
    assert is_titled("怎么开罐", "", box)
    assert is_titled("怎么开罐？", "", "提问：怎么开罐？\n\n解答：拧。")
    assert is_titled("What is a jar?", JOINT.join(["Jars", "What is a jar?"]), "")
    assert is_asked("what is a jar", "What is a jar")
    assert not is_asked("What is a jar?", "Jars")
    assert is_asked("怎麼開罐頭？", "如何开罐头？")
    assert is_asked("是不是会员？", "会员吗？")
    assert is_asked("What's the best jar?", "What is the best jar?")
    assert is_asked("Why doesn't it open?", "Why doesn’t it open?")


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("Why does the pump stop?", "How do I stop the pump?"),
        ("Where is the pump installed?", "Installing the pump"),
        ("How many pumps failed?", "Failed pumps"),
        ("How do I turn PNG into JPEG?", "How do I turn JPEG into PNG?"),
        ("Can I not use the pump?", "Can I use the pump?"),
        ("How do I install it?", "Installation"),
        ("谁安装水泵？", "怎么安装水泵？"),
        ("为什么没有声音？", "为什么有声音？"),
        ("为什么我不是会员？", "为什么我是会员？"),
    ],
)
def test_the_same_words_may_ask_for_something_else(question: str, title: str) -> None:
    assert not is_asked(question, title)
