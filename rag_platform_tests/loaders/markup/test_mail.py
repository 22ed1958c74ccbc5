"""Mails and saved pages: headers, text, forwarded mails, pictures, each block proved against the
message.
"""

from __future__ import annotations

from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest

from rag_platform.errors import DocumentError
from rag_platform.ir import HiddenText
from rag_platform.loaders.markup.mail import MailLoader, MhtmlLoader
from rag_platform_tests.conftest import PICTURE


def mail(subject: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = (
        subject,
        "Ann Łoś <ann@example.org>",
        "Bob <bob@example.org>",
    )
    message["Date"] = "Mon, 1 Jan 2024 10:00:00 +0100"
    message.set_content(text, charset="iso-8859-2")
    return message


def written(tmp_path: Path, message: EmailMessage, name: str = "a.eml") -> Path:
    (tmp_path / name).write_bytes(message.as_bytes())
    return tmp_path / name


def test_a_mail_with_a_forwarded_one_and_an_attachment(tmp_path: Path) -> None:
    message = mail("Zażółć 预算", "Hello Bob,\n\nthe budget is 42 EUR.\nŁódź\n")
    message.add_attachment(mail("Old one", "First words.\n"))
    message.add_attachment(b"%PDF-1.7", maintype="application", subtype="pdf", filename="plan.pdf")
    path = written(tmp_path, message)
    facts = MailLoader().load(path, "a.eml")
    head = (
        "From: Ann Łoś <ann@example.org>\n"
        "To: Bob <bob@example.org>\n"
        "Date: Mon, 01 Jan 2024 10:00:00 +0100\n"
        "\n"
    )
    assert (
        facts.text == f"# Zażółć 预算\n\n{head}Hello Bob,\n\nthe budget is 42 EUR.\nŁódź\n\n## Old"
        f" one\n\n{head}First words.\n"
    )
    assert [block.locator for block in facts.blocks] == [
        "header=subject",
        "header=from",
        "header=to",
        "header=date",
        "part=1;lines=1-1",
        "part=1;lines=3-4",
        "part=2.0;header=subject",
        "part=2.0;header=from",
        "part=2.0;header=to",
        "part=2.0;header=date",
        "part=2.0;lines=1-1",
    ]
    assert facts.summary.title == "Zażółć 预算"
    assert facts.summary.warnings == (
        "the attachment plan.pdf was not read; save it as a file and ingest that",
    )
    assert MailLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    for number, block in enumerate(facts.blocks):
        at = next(i for i in range(block.end - 1, block.start, -1) if facts.text[i].isalnum())
        assert MailLoader().verify_blocks(
            path, f"{facts.text[:at]}Ж{facts.text[at + 1 :]}", [block]
        ), block
        if number < 6:
            assert MailLoader().verify_blocks(
                path, facts.text, [replace(block, locator=facts.blocks[number - 1].locator)]
            ), block


def test_of_alternatives_the_one_that_says_more_is_read(tmp_path: Path) -> None:
    for plain, text in (
        ("The same words.", "The same words."),
        ("See page", "| a | b |\n| --- | --- |\n| many more | words here |"),
    ):
        message = mail("S", plain)
        message.add_alternative(
            (
                "<p>The same words.</p>"
                if plain[0] == "T"
                else "<table><tr><th>a<th>b<tr><td>many more<td>words here</table>"
            ),
            subtype="html",
        )
        path = written(tmp_path, message)
        facts = MailLoader().load(path, "a.eml")
        assert facts.text.partition("+0100\n\n")[2] == f"{text}\n"
        assert MailLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_what_only_the_other_alternative_says_is_listed(tmp_path: Path) -> None:
    message = mail(
        "S", "Dear Bob,\n\nsee the plan at https://example.org/plan and answer by Friday.\n"
    )
    page = "<p>Dear Bob,<p>see the <a href=x>plan</a> and answer by Friday.<p>Unsubscribe here.</p>"
    message.add_alternative(page, subtype="html")
    facts = MailLoader().load(written(tmp_path, message), "a.eml")
    assert "see the plan at https://example.org/plan and answer" in facts.text
    assert facts.summary.hidden == (HiddenText(0, "alternative", "Unsubscribe here."),)
    message = mail("S", "Your order was received and is being prepared in our warehouse.\n")
    message.add_alternative("<p>Order 4711: two pumps at 420 EUR each.</p>", subtype="html")
    facts = MailLoader().load(written(tmp_path, message), "a.eml")
    assert "two pumps at 420 EUR" in facts.text
    assert [item.text[:10] for item in facts.summary.hidden] == ["Your order"]


def test_headers_that_hold_plain_bytes_are_read_as_the_text_is(tmp_path: Path) -> None:
    head = "Subject: 水泵\nFrom: <a@example.org>\n"
    body = "您好，水泵每台四千二百元。\n"
    for charset, declared in (("gbk", "gb2312"), ("gbk", ""), ("big5", "big5"), ("utf-8", "gbk")):
        kind = f"Content-Type: text/plain; charset={declared}\n" if declared else ""
        raw = (head + kind + "\n" + body).encode(charset)
        (tmp_path / "a.eml").write_bytes(raw)
        facts = MailLoader().load(tmp_path / "a.eml", "a.eml")
        assert facts.text == f"# 水泵\n\nFrom: <a@example.org>\n\n{body}", (charset, declared)
        assert MailLoader().verify_blocks(tmp_path / "a.eml", facts.text, facts.blocks) == {}


def test_a_header_that_begins_like_another_type_of_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"Subject: %PDF-1.7 is broken\n\nHelp.\n")
    facts = MailLoader().load(tmp_path / "a.eml", "a.eml")
    assert facts.text == "# %PDF-1.7 is broken\n\nHelp.\n"


def test_lines_broken_to_be_sent_are_whole_again(tmp_path: Path) -> None:
    body = "东京的会 \n议在三点。\n> 引用的 \n> 话\n next \n> other\n-- \nAnn\n"
    head = "Subject: S\nContent-Type: text/plain; charset=utf-8; format=flowed"
    path = tmp_path / "a.eml"
    for more, text in (
        ("; delsp=yes", "东京的会议在三点。\n> 引用的话\nnext \n> other\n-- \nAnn"),
        ("", body.strip("\n")),
    ):
        path.write_text(f"{head}{more}\n\n{body}", encoding="utf-8")
        facts = MailLoader().load(path, "a.eml")
        assert facts.text == f"# S\n\n{text}\n"
        assert MailLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_a_saved_page_with_its_picture(tmp_path: Path) -> None:
    page = (
        "<html><head><title>Ports</title></head><body><h1>Ports</h1><p>Port 8080.</p><img"
        " src='img/a.png' alt='plan'></body></html>"
    )
    message = EmailMessage()
    message["Subject"], message["Snapshot-Content-Location"] = (
        "Ports",
        "https://example.org/docs/ports.html",
    )
    message.set_content(page, subtype="html", charset="utf-8")
    message.add_related(PICTURE, maintype="image", subtype="png")
    parts = list(message.iter_parts())
    parts[0]["Content-Location"] = "https://example.org/docs/ports.html"
    parts[1]["Content-Location"] = "https://example.org/docs/img/a.png"
    path = written(tmp_path, message, "a.mhtml")
    facts = MhtmlLoader().load(path, "a.mhtml")
    assert facts.text == "# Ports\n\nPort 8080.\n\n![plan](img/a.png)\n"
    assert facts.blocks[0].locator == "part=1;xpath=/html/body/h1"
    assert [ref.origin_ref[:22] for ref in facts.media] == ["data:image/png;base64,"]
    assert (facts.summary.title, facts.summary.metadata["url"]) == (
        "Ports",
        "https://example.org/docs/ports.html",
    )
    assert MhtmlLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert MhtmlLoader().verify_blocks(path, facts.text.replace("8080", "8081"), facts.blocks)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"just words\n", "broken_file"),
        (b"Subject: empty\n\n", "empty_file"),
        (
            (
                b"Subject: s\n"
                b"MIME-Version: 1.0\n"
                b"Content-Type: multipart/encrypted; boundary=x\n"
                b"\n"
                b"--x\n"
                b"\n"
                b"v\n"
                b"--x--\n"
            ),
            "encrypted",
        ),
        (
            b"Subject: s\nContent-Type: multipart/mixed; boundary=x\n\n"
            + b"--x\n\np\n" * 3000
            + b"--x--\n",
            "too_large",
        ),
        (
            (
                b"Subject: \xff\xfe=?bad?q?x?=\n"
                b"From: <<<>>;;@\n"
                b"Date: never\n"
                b"Content-Type: text/plain; charset=none\n"
                b"\n"
                b"words"
            ),
            "",
        ),
    ],
)
def test_odd_mails_are_read_or_refused_with_a_reason(tmp_path: Path, raw: bytes, code: str) -> None:
    (tmp_path / "a.eml").write_bytes(raw)
    if not code:
        facts = MailLoader().load(tmp_path / "a.eml", "a.eml")
        assert "words" in facts.text.encode().decode()
        assert MailLoader().verify_blocks(tmp_path / "a.eml", facts.text, facts.blocks) == {}
        return
    with pytest.raises(DocumentError) as caught:
        MailLoader().load(tmp_path / "a.eml", "a.eml")
    assert caught.value.code == code
