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


REPORT = b"""Subject: Returned
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary=B

--B
Content-Type: text/plain

Not delivered.
--B
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org

Final-Recipient: rfc822; ben@example.net
Diagnostic-Code: smtp; 550 5.1.1
 Mailbox unknown
--B
Content-Type: text/rfc822-headers

Subject: Pumps
--B
Content-Type: message/rfc822; name=m.eml
Content-Transfer-Encoding: base64

U3ViamVjdDogTWludXRlcwoKVGhlIGJvYXJkIGFn
cmVlZC4K
--B--
"""


def test_the_parts_of_a_report_and_an_encoded_mail_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.eml"
    path.write_bytes(REPORT)
    facts = MailLoader().load(path, path.name)
    assert MailLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert facts.summary.warnings == ()
    assert facts.text == (
        "# Returned\n\nNot delivered.\n\nReporting-MTA: dns; mx.example.org\n\n"
        "Final-Recipient: rfc822; ben@example.net\nDiagnostic-Code: smtp; 550 5.1.1\n"
        " Mailbox unknown\n\nSubject: Pumps\n\n## Minutes\n\nThe board agreed.\n"
    )


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


@pytest.mark.parametrize(
    ("plain", "page", "text", "left_out"),
    [
        # the plain text says all that the page says, and more
        ("Dear Ann,\n\nit costs 42 EUR.", "<p>Dear Ann,</p>", "Dear Ann,\n\nit costs 42 EUR.", ()),
        # addresses, which only plain text spells, count as no words
        (
            "Order here: https://example.org/x",
            "<p>Order <b>here</b>:</p>",
            "Order here: https:",
            (),
        ),
        # the page says other things, though it is no longer
        (
            "Your program shows no pages, read this in a browser.",
            "<p>Hall C is closed until <b>9 May</b>, use hall D, and read the plan.</p>",
            "Hall C is closed until **9 May**, use hall D, and read the plan.",
            ("Your program shows no pages, read this in a browser.",),
        ),
        # both say something of their own
        (
            "会议在下午三点举行。\n\nBring the plan of hall C.",
            "<p>会议在下午三点举行。</p><p>Hall <b>D</b> instead.</p>",
            "会议在下午三点举行。\n\nBring the plan of hall C.",
            ("Hall D instead.",),
        ),
    ],
)
def test_of_alternatives_the_one_that_says_less_is_left_out_and_what_only_it_says_listed(
    tmp_path: Path, plain: str, page: str, text: str, left_out: tuple[str, ...]
) -> None:
    message = EmailMessage()
    message["Subject"] = "S"
    message.set_content(plain)
    message.add_alternative(page, subtype="html")
    path = written(tmp_path, message)
    facts = MailLoader().load(path, "a.eml")
    assert facts.text.startswith(f"# S\n\n{text}")
    assert facts.summary.hidden == tuple(HiddenText(0, "alternative", item) for item in left_out)
    assert MailLoader().verify_blocks(path, facts.text, facts.blocks) == {}


CALENDAR = """BEGIN:VCALENDAR
BEGIN:VTIMEZONE
DTSTART:16010101T020000
END:VTIMEZONE
BEGIN:VEVENT
DESCRIPTION:Please join.\\n\\nBring
  figures.
LOCATION:Room Aspen\\, floor 2
DTSTART;TZID="W. Europe":20240307T150000
DTEND:20240307T150000Z
RRULE:FREQ=WEEKLY
BEGIN:VALARM
DESCRIPTION:REMINDER
END:VALARM
END:VEVENT
END:VCALENDAR
"""
MEETING = (
    "Start: 2024-03-07 15:00 W. Europe\nEnd: 2024-03-07 15:00 UTC\nRepeats: FREQ=WEEKLY\n"
    "Location: Room Aspen, floor 2\n"
)
DESCRIBED = "\nPlease join.\n\nBring figures.\n"


@pytest.mark.parametrize(
    ("said", "text"), [("Join us.", f"Join us.\n\n{MEETING}"), ("", MEETING + DESCRIBED)]
)
def test_an_invitation_says_when_and_where(tmp_path: Path, said: str, text: str) -> None:
    message = EmailMessage()
    message["Subject"] = "S"
    message.set_content(said)
    message.add_alternative(CALENDAR, subtype="calendar")
    path = written(tmp_path, message)
    facts = MailLoader().load(path, "a.eml")
    assert facts.text == f"# S\n\n{text}"
    left_out = (HiddenText(0, "alternative", "Please join. Bring figures."),) if said else ()
    assert (facts.summary.hidden, facts.summary.warnings) == (left_out, ())
    assert MailLoader().verify_blocks(path, facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    ("declared", "encoding", "subject", "body"),
    [
        ("", "gbk", "报价单", "您好，水泵单价为四千二百元，交货期二十天。"),
        ("; charset=gb2312", "gbk", "报价单", "您好"),
        ("; charset=big5", "big5", "報價單", "您好"),
        ("; charset=iso-8859-1", "latin-1", "Grüße aus Köln", "Schöne Grüße"),
        ("; charset=us-ascii", "gbk", "关于年会的通知", "See the list."),
        ("; charset=utf-8", "utf-8", "报价单", "您好"),
        ("", "iso2022_jp", "会議", "明日です。"),
    ],
)
def test_headers_of_raw_bytes_are_read_as_the_text_is(
    tmp_path: Path, declared: str, encoding: str, subject: str, body: str
) -> None:
    (tmp_path / "a.eml").write_bytes(
        b'From: "'
        + subject.encode(encoding)
        + b'" <a@example.org>\r\nSubject: '
        + subject.encode(encoding)
        + f"\r\nContent-Type: text/plain{declared}\r\n"
        "Content-Transfer-Encoding: 8bit\r\n\r\n".encode()
        + body.encode(encoding)
        + b"\r\n"
    )
    facts = MailLoader().load(tmp_path / "a.eml", "a.eml")
    assert facts.text == f'# {subject}\n\nFrom: "{subject}" <a@example.org>\n\n{body}\n'
    assert facts.summary.title == subject
    assert MailLoader().verify_blocks(tmp_path / "a.eml", facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("Re: 报价 =?utf-8?B?5byg5LiJ?= x".encode("gbk"), "Re: 报价 张三 x"),
        ("Grüße =?utf-8?B?5byg?= =?utf-8?B?5LiJ?=!".encode(), "Grüße 张三!"),
        (b"a =?utf-8?Q?b_c?=\r\n =?utf-8?Q?d?= e", "a b cd e"),
        (b"=?no-such?Q?b?= =?= ?", "=?no-such?Q?b?= =?= ?"),
    ],
)
def test_encoded_words_may_stand_beside_raw_bytes(tmp_path: Path, sent: bytes, read: str) -> None:
    (tmp_path / "a.eml").write_bytes(b"Subject: " + sent + b"\r\n\r\nwords")
    assert MailLoader().load(tmp_path / "a.eml", "a.eml").summary.title == read


FLOWED = (
    "The budget is \n"
    "42 EUR.\n"
    " >not a quote\n"
    "\n"
    "> Who pays \n"
    "> for it?\n"
    ">> I do.\n"
    "Ann \n"
    "-- \n"
    "Ann, hall C\n"
)


@pytest.mark.parametrize(
    ("parameters", "body", "text", "places"),
    [
        (
            "; format=flowed",
            FLOWED,
            "The budget is 42 EUR.\n>not a quote\n\n"
            "> Who pays for it?\n>> I do.\nAnn\n-- \nAnn, hall C\n",
            ["part=1;lines=1-3", "part=1;lines=5-10"],
        ),
        (
            "; format=Flowed; delsp=YES",
            "会议在下午 \n三点举行。 \n\n> 谁 \n> 来？\n",
            "会议在下午三点举行。\n\n> 谁来？\n",
            ["part=1;lines=1-2", "part=1;lines=4-5"],
        ),
        ("", "Kept \nas it is.\n", "Kept \nas it is.\n", ["part=1;lines=1-2"]),
    ],
)
def test_soft_line_breaks_are_undone(
    tmp_path: Path, parameters: str, body: str, text: str, places: list[str]
) -> None:
    (tmp_path / "a.eml").write_bytes(
        f"Subject: S\nContent-Type: text/plain; charset=utf-8{parameters}\n\n{body}".encode()
    )
    facts = MailLoader().load(tmp_path / "a.eml", "a.eml")
    assert facts.text == f"# S\n\n{text}"
    assert [block.locator for block in facts.blocks[1:]] == places
    assert MailLoader().verify_blocks(tmp_path / "a.eml", facts.text, facts.blocks) == {}


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
