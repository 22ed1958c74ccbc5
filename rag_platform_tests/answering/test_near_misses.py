"""A quote about something beside what was asked is told as that, another one is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rag_platform.answering.doubts import find_doubts, list_quoted
from rag_platform.answering.near_misses import find_near_miss
from rag_platform.answering.other_dates import find_other_date, find_other_place, find_other_year
from rag_platform.config.settings import Limits
from rag_platform.ir import Hit
from rag_platform.protocols import Vectors
from rag_platform.query.analysis import find_parts, prepare
from rag_platform.text.segmentation import chinese_dictionary

TOKENS = "Sandbox tokens expire after 12 hours. Production tokens are issued by the security team."
ROOMS = "The north wing of the hall opens at 9. The south wing has a stage."
HOTELS = "国内出差的酒店标准为每晚 450 元。境外出差须提前两周提交申请。"
DEVICE = "The tank holds three litres. The filter is cleaned every week."
DEVICE_ZH = "水箱容量为4升。滤网每两周清洗一次，晾干后装回。"
NOTICE = "3.1 The seller replaces the goods. 4.1 The buyer gives notice of sixty days."
ALLOWANCE = "The daily allowance of staff is 45 euros. Trips of directors are approved."
# both are told, in sentences of their own
TRAILS = "The northern trail takes five hours. The southern trail takes two. Dogs love both."


def hit(text: str, title: str = "Guide") -> Hit:
    return Hit(1, "c1", 1.0, "hybrid", "d", "d@1", "guide.md", "guide.md", title, "", 1, text)


@pytest.mark.parametrize(
    ("question", "text", "told"),
    [
        ("When do production tokens expire?", TOKENS, ("production tokens", "Sandbox tokens")),
        ("when does the south wing of the hall open", ROOMS, ("south wing", "north wing")),
        ("境外出差的酒店标准是多少？", HOTELS, ("境外出差", "国内出差")),
        ("境外出差的酒店標準是多少？", HOTELS, ("境外出差", "国内出差")),
        ("系统提供哪些数据？", "系统提供行情数据。常见问题说明有哪些数据。", None),
        ("When do sandbox tokens expire?", TOKENS, None),
        ("国内出差的酒店标准是多少？", HOTELS, None),
        ("How long does the southern trail take?", TRAILS, None),
        ("How often is the tank cleaned?", DEVICE, ("tank", "filter")),
        ("水箱多久清洗一次？", DEVICE_ZH, ("水箱", "滤网")),
        ("How many days' notice must the seller give?", NOTICE, ("seller", "buyer")),
        ("What is the daily allowance of directors?", ALLOWANCE, ("directors", "staff")),
        ("How many litres does the tank hold?", DEVICE, None),
        ("How many days' notice must the buyer give?", NOTICE, None),
        # a synonym, for all that the text says
        ("When do staging tokens expire?", TOKENS, None),
        # the sentence names it, in another clause
        ("When do production tokens expire?", f"{TOKENS[:35]}, but production ones do not.", None),
        # neither a preposition, an adverb nor a time is a thing
        (
            "what do I do before going on holiday",
            "Developers going on holiday hand over. Before noon it is quiet.",
            None,
        ),
        ("How often is the tank cleaned?", "Ideally, it is cleaned daily. The tank is grey.", None),
        ("How often is the tank cleaned?", "Prior to its sale, clean it. The tank is grey.", None),
        ("水箱多久清洗一次？", "九月清洗一次。水箱为灰色。", None),
        ("冰箱由谁管理？", "低温冰箱由王敏管理。冰箱为灰色。", None),  # a kind of it
        ("水箱一年多少钱？", "滤网应在一年内更换。水箱为灰色。", None),  # only a number in common
        ("夜班一晚给多少钱？", "北京同事安排一晚住宿。夜班补贴 150 元。", None),
        # a label is no thing
        ("Who was absent in April?", "Date: 3 April 2025\n\nAbsent: Ada Byron", None),
    ],
)
def test_the_neighbour_of_what_was_asked_is_told(question: str, text: str, told: Any) -> None:
    passages = [hit(text)]
    assert find_near_miss(question, text, passages, passages) == told


def test_a_folder_with_a_version_names_its_product() -> None:
    notes = "feat: navbar 新增标题模式。"
    inside = dataclasses.replace(hit(notes, ""), source_uri="npm/uview-plus-3.8.112/changelog.md")
    assert find_near_miss("uview-plus navbar 新增标题", f"{notes} [1]", [inside], [inside]) is None


def test_code_is_no_neighbour() -> None:
    code = hit("```bash\ngit clone butterfly\n```\n\n國內的鏡像較快。")
    answer = "```bash\ngit clone butterfly\n```\n\n[1]"
    assert find_near_miss("国内怎么 clone butterfly", answer, [code], [code]) is None


def test_what_a_heading_names_is_all_that_stands_below_it() -> None:
    question = "When do production tokens expire?"
    passages = [hit(TOKENS, "Production")]
    assert find_near_miss(question, TOKENS, passages, passages) is None


def test_an_item_that_a_quoted_sentence_contains_is_not_quoted() -> None:
    sentence = "The port of the host is 8080."
    passage = hit(f"- port\n- host\n- user\n\n{sentence}")
    assert list_quoted("Which port?", f"{sentence} [1]", [passage]) == [sentence]


def test_a_quoted_row_is_read_with_the_names_of_its_columns() -> None:
    table = "| Office | Gateway |\n| --- | --- |\n| Lyon | 10.8.0.1 |"
    quoted = list_quoted("", f"{table}\n\n[1]", [hit(table)])
    assert quoted == ["Office Gateway | Lyon | 10.8.0.1 |"]


def test_what_answers_the_question_in_a_list_of_questions_is_read_with_it() -> None:
    faq = "**How do I renew a card?**\n\nAt any desk.\n\n**How do I block a card?**\n\nBy phone."
    asked, answer = "how can I block a card", "By phone. [1]"
    assert list_quoted(asked, answer, [hit(faq)]) == ["How do I block a card?", "By phone."]
    assert list_quoted("how can I block a key", answer, [hit(faq)]) == ["By phone."]


LOCK = "童锁用于防止误触。长按锁键3秒可关闭童锁。香薰盒在底座右侧。"
CACHE = "The cache keeps results.\n\nSet `metrics` to false to disable metrics."
# numbers in brackets that are no marks
PUMP = "The pump reads `argv[12]`.\n\nThe valve shuts, see [74](https://x.org/74)."


@pytest.mark.parametrize(
    ("question", "text", "unanswered"),
    [
        ("How high is the deposit, and which bank holds it?", "The deposit is 900 euros.", 1),
        ("What does the cache do and how do I disable it?", CACHE, 1),
        ("What does the pump read and what does the lid do?", PUMP, 1),
        ("What does the pump read and what does the valve do?", PUMP, None),
        ("香薰盒在哪里，多久清洗？", LOCK, 1),
        ("童锁是什么，怎么关闭？", LOCK, None),
        # when the lock begins, not the exhibition
        ("童鎖是什麼，什麼時候開始？", "童鎖用於防止誤觸。\n\n展覽在5月開始。", 1),
        ("How are metrics disabled and what does the cache keep?", CACHE, None),
        ("What is a valve and what does it cost?", "A valve is a part.\n\nA pump: 3 euros.", 1),
    ],
)
def test_the_part_of_a_question_that_is_unanswered_is_told(
    question: str, text: str, unanswered: int | None
) -> None:
    query = prepare(question, Limits())
    answer = text.replace("\n\n", " [1]\n\n")
    told = find_doubts(query, f"{answer} [1]", [hit(text)])
    if unanswered is None:
        assert told == ()
    else:
        part = find_parts(question, clauses=True)[unanswered].rstrip("?？")
        assert told == (f"this part of the question may be unanswered: “{part}”",)


def test_parts_of_an_english_question_load_no_chinese_dictionary() -> None:
    chinese_dictionary.cache_clear()
    find_doubts(prepare("What does it keep and how is it disabled?", Limits()), "", [])
    assert chinese_dictionary.cache_info().currsize == 0


NO_NAME = ("the question asks who, and the answer has no name",)


def tell(unsaid: str) -> tuple[str, ...]:
    return (f"what was found does not speak of “{unsaid}”",) if unsaid else ()


STOCK = "| 物料 | 库存 | 单价 |\n| --- | --- | --- |\n| 轴承 | 320 | 8.5 |\n\n[1]"


@pytest.mark.parametrize(
    ("question", "answer", "doubts"),
    [
        # a post is no name
        ("Who is the captain?", "The captain steers the ship. [1]", NO_NAME),
        ("信息总监是谁？", "信息总监审批变更，由总经理任命。 [1]", NO_NAME),
        ("安全主管是谁？", "信息总监审批变更，安全主管钱宁保管密钥。 [1]", ()),
        ("楼长是谁？", "| 楼 | 楼长 |\n| --- | --- |\n| 三号楼 | 贺春 |\n\n[1]", ()),
        ("谁开发了泵机？", "泵机分为三种规格，需要自己安装。 [1]", ()),  # may be in other words
        # a post within a longer one, and one of another department
        ("经理是谁？", "总经理是周国平。副经理由何敏担任。 [1]", tell("经理")),
        ("質量部副部長由誰擔任？", "质量部部长由钱卫东担任。 [1]", tell("质量部副部长")),
        ("谁是技术总监？", "财务总监是林岚。 [1]", tell("技术总监")),
        ("总监是谁？", "财务总监：林岚。 [1]", tell("总监")),
        ("校长是谁？", "学校校长由林岚担任。 [1]", ()),
        ("总经理是谁？", "总经理是周国平。 [1]", ()),
        ("采购部的经理是谁？", "任命张伟为采购部经理。 [1]", ()),
        ("Who is the director?", "Our managing director is Ada Byron. [1]", tell("director")),
        ("Who is the plant manager?", "Our deputy plant manager is Al. [1]", tell("plant manager")),
        ("Who is the plant manager?", "Our plant manager is Ada Byron. [1]", ()),
        ("Who is the chairman?", "The chairwoman is Ada Byron. [1]", ()),
        ("Who is the CEO?", "The chief executive is Ada Byron. [1]", ()),
    ],
)
def test_an_answer_without_the_holder_of_the_post_asked_for_is_told(
    question: str, answer: str, doubts: tuple[str, ...]
) -> None:
    assert find_doubts(prepare(question, Limits()), answer, ()) == doubts


@pytest.mark.parametrize(
    ("question", "answer", "is_told"),
    [
        ("MySQL 什么版本？", "MySQL 每天 02:30 全量备份，保留 30 天。 [1]", True),
        ("Which version of MySQL do we run?", "MySQL is saved every night at 2. [1]", True),
        ("Kafka 版本是多少？", "Kafka 版本 3.6.1，监听端口 9092。 [1]", False),
        ("Which version of the JDK is needed?", "Install JDK 17. [1]", False),
        ("哪个版本支持导出？", "只有企业版支持导出。 [1]", False),
        ("sdk 需要 node 几", "Node.js SDK 4.0 是 API 3.0 的工具。 [1]", True),
        ("sdk 需要 node 几", "SDK 4.0 需要 Node.js 10.0.0 及以上。 [1]", False),
        ("MySQL 怎么备份？", "MySQL 每天全量备份。 [1]", False),
        ("这个版本是否支持导出？", "支持导出为表格。 [1]", False),
        ("Python 版本是 3.9 时怎么安装？", "先下载安装包，再双击运行。 [1]", False),
        ("Which release of Debian is stable?", "Debian bookworm is stable. [1]", False),
    ],
)
def test_an_answer_without_the_version_asked_for_is_told(
    question: str, answer: str, is_told: bool
) -> None:
    doubts = ("the question asks for a version, and the answer has none",) if is_told else ()
    assert find_doubts(prepare(question, Limits()), answer, ()) == doubts


PRICES = "| Article | Unit price | Stock |\n| --- | --- | --- |\n| NT-3001 | 84.50 | 5 |\n\n[1]"
# the columns are alike by 0, 0 and .6: mean .2, deviation .28, so that .62 means one of them
MEANINGS = {"Article": (1, 0, 0, 0), "Unit price": (0, 1, 0, 0), "Stock": (0, 0.6, 0.8, 0)}
MEANINGS |= {"物料": (1, 0, 0, 0), "单价": (0, 1, 0, 0), "库存": (0, 0.6, 0.8, 0)}
MEANINGS |= {"weight": (0, 0, 0.6, 0.8), "inventory": (0, 0, 1, 0), "重量": (0, 0, 0, 1)}


def embed(texts: Sequence[str]) -> Vectors:
    return np.array([MEANINGS[text] for text in texts], np.float32)


@pytest.mark.parametrize(
    ("question", "answer", "unsaid"),
    [
        ("What is the weight of NT-3001?", PRICES, "weight"),  # .48 like Stock
        ("Which weight does NT-3001 have?", PRICES, "weight"),
        ("轴承的重量是多少？", STOCK, "重量"),
        ("What is the inventory of NT-3001?", PRICES, ""),  # .8 like Stock
        ("What is the weight of 轴承?", STOCK, ""),  # another language
        ("What is the stock of NT-3001?", PRICES, ""),
        ("What is the cost of NT-3001?", PRICES, ""),  # a price
        ("What is the mascot of pumps?", "Pumps have a red lid. [1]", "mascot"),
        (
            "What is the mascot of red pumps?",
            "Pumps have a red lid. [1]",
            "",
        ),  # more than the title
        ("What is the purpose of pumps?", "Pumps lift water. [1]", ""),
        ("What is the nickname of pumps?", "Pumps are called lifters. [1]", ""),
        ("Which valves do pumps have?", "Pumps have a red lid. [1]", ""),  # may be a kind of part
        ("What is the colour of pumps?", "Pumps have a red lid. [1]", ""),  # the passage has it
    ],
)
def test_a_property_that_nothing_found_speaks_of_is_told(
    question: str, answer: str, unsaid: str
) -> None:
    passage = hit("The colour tells old ones from new ones.", "Pumps")
    query = prepare(question, Limits())
    assert find_doubts(query, answer, [passage], embed) == tell(unsaid)
    # a phrasing may call it otherwise
    phrased = dataclasses.replace(query, rewrites=("NT-3001", "轴承"))
    assert find_doubts(phrased, answer, [passage], embed) == ()


def test_without_an_embedder_any_column_may_mean_what_is_asked_for() -> None:
    query = prepare("What is the weight of NT-3001?", Limits())
    assert find_doubts(query, PRICES, [hit(PRICES, "Pumps")]) == ()


@pytest.mark.parametrize(
    ("question", "unsaid"),
    [
        ("EG-500 的颜色是多少？", "颜色"),
        ("咖啡机的颜色是什么？", ""),  # texts state properties of things without their words
        ("EG-500 的额定功率是多少？", ""),  # another passage has it
        ("EG-500 的重量是多少？", ""),  # it weighs 3.2 kg
        ("EG-500 的价格是多少？", ""),  # texts state prices without the word
        ("EG-500 的重量上限是多少？", ""),
        ("EG-500 更新了什么？", ""),
        ("LX-9 的颜色是多少？", ""),  # no passage is about that
        ("EG-500 的房间号是多少？", "房间号"),  # an order number is another one
        ("EG-500 的传真号码是多少？", "传真号码"),
        ("EG-500 的工作温度是多少？", "工作温度"),  # only the quote about another thing has it
    ],
)
def test_a_property_that_only_others_have_is_told(question: str, unsaid: str) -> None:
    passages = [
        hit("咖啡机重 3.2 千克。", "咖啡机 EG-500"),
        hit("额定功率为 500 瓦。", "咖啡机 EG-500"),
        hit("净化器的颜色为白色。", "净化器 PM-330"),
    ]
    answer = "咖啡机重 3 千克，订单号为 8。 [1]\n\n净化器的湿度为 9。 [3]"
    assert find_doubts(prepare(question, Limits()), answer, passages) == tell(unsaid)


WASTE = "Bulky waste is collected on Monday. A paper permit costs 5 euros."


@pytest.mark.parametrize(
    ("question", "text", "unsaid"),
    [
        ("how much is the waste permit", WASTE, "waste permit"),
        ("when is bulky waste collected", WASTE, ""),
        ("what is the difference between permits and waste", WASTE, ""),
        ("how do I collect paper waste", WASTE, ""),  # not a question for one fact
        ("国庆节放假几天？", "春节放假8天。", "国庆节放假"),
        ("2027年版差旅费办法的补助是多少？", "办法规范差旅费，补助为150元。", ""),  # 年版
        ("衝壓車間的不良率是多少？", "注塑车间的不良率为2%。冲压件另计。", "冲压车间"),
        ("春節放假幾天？", "春节放假8天。", ""),
        ("校准一次多少元？", "年度校准 5 元。每年一次。", ""),
        ("夜班一晚多少钱？", "夜班补贴 150 元。安排一晚住宿。", ""),  # a number, not a thing
        ("多少球员入选名单？", "11人入选名单。", ""),  # only counted, not what it is about
        (
            "how long does a permit run",
            "A permit is valid for 12 months. It may run out.",
            "",
        ),  # a verb
        ("what is the usual cost of a permit", "A permit costs 5 euros.", ""),
        ("身体最高的部位是哪里？", "最高部位在背鳍前方。身体延长。", ""),
        ("野马队对阵匹兹堡拿下多少分？", "野马队在匹兹堡拿下23分。", ""),  # a name
        ("经理的通讯补贴是多少？", "| 职级 | 通讯补贴 |\n| --- | --- |\n| 经理 | 150 |\n\n", ""),
    ],
)
def test_a_thing_that_no_sentence_found_names_is_told(
    question: str, text: str, unsaid: str
) -> None:
    query = prepare(question, Limits())
    assert find_doubts(query, f"{text} [1]", [hit(text)]) == tell(unsaid)
    # a heading names what stands below it, and a phrasing may call it otherwise
    if unsaid:
        assert find_doubts(query, f"{text} [1]", [hit(text, unsaid)]) == ()
    phrased = dataclasses.replace(query, rewrites=("waste",))
    assert find_doubts(phrased, f"{text} [1]", [hit(text)]) == ()


@pytest.mark.parametrize(
    ("question", "first", "unsaid"),
    [
        ("What does bandit B603 check?", "# B603: subprocess", "b603"),
        ("B603 检查什么", "# B603：子进程", "b603"),
        # no passage has it, and the answer may say it in other words
        ("What does bandit B604 check?", "# B603: subprocess", ""),
        ("What does bandit check?", "# B603: subprocess", ""),
    ],
)
def test_an_answer_without_the_code_of_another_passage_is_told(
    question: str, first: str, unsaid: str
) -> None:
    text = "检查子进程。" if "检查" in question else "Bandit checks calls."
    passages = [hit(first, "B603"), hit(text)]
    query = prepare(question, Limits())
    assert find_doubts(query, f"{text} [2]", passages) == tell(unsaid)
    assert find_doubts(query, f"{text} [1]", [hit(text, "B603"), hit(first)]) == ()


def test_a_word_that_only_another_product_has_is_told() -> None:
    passages = [
        dataclasses.replace(hit(text), source_uri=path, doc_title=title)
        for path, title, text in (
            ("koa/README.md", "Koa", "Koa needs Node 18."),
            ("got/README.md", "Got", "Got has the MIT license."),
        )
    ]
    for asked, told in (("license does Koa", "license"), ("Node does Koa", ""), ("Node has", "")):
        query = prepare(f"What {asked} need?", Limits())
        warning = f"what was found does not speak of “{told}”"
        found = find_doubts(query, "Koa needs Node 18. [1]", passages)
        assert found == ((warning,) if told else ())


HIT = Hit(1, "c1", 1.0, "hybrid", "d", "d@1", "minutes.md", "minutes.md", "Minutes", "", 1, "")


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        ("华东区第二季度完成多少？", "华东区第一季度完成460万元。", ("二季度", "一季度")),
        ("What was the revenue in Q4?", "In the third quarter it was 5.", ("Q4", "third quarter")),
        ("What was the revenue in Q3?", "In the third quarter it was 5.", None),
        ("what was decided in june?", "In May the fee was raised.", ("june", "May")),
        ("2025年4月的周会决定了什么？", "时间：2025年3月12日", ("4月", "3月")),
        ("十月新增了什么？", "v1.8.0 (2025-02-18)：批量创建", ("十月", "2025-02")),
        ("二月新增了什么？", "v1.8.0 (2025-02-18)：批量创建", None),
        ("財務部週五付款嗎？", "财务部每周三付款。", ("周五", "周三")),
        ("Is it open on Sundays?", "It opens on Monday at 9.", ("Sundays", "Monday")),
        # the answer has both; the sentence with the question's words is about the other one
        ("二季度破损多少托盘？", "一季度破损12托盘。二季度出库4650件。", ("二季度", "一季度")),
        ("二季度出库多少？", "一季度破损12托盘。二季度出库4650件。", None),
        # the date that is asked for, in another form
        ("2024年3月18日签订的合同", "签订日期：二〇二四年三月十八日。2024年4月30日交货。", None),
        (
            "2024年3月18日签订的合同",
            "二〇二四年三月十八日开会。2024年4月1日签订合同。",
            ("3月18日", "4月1日"),
        ),
        # days, however they are written
        (
            "11月15号谁值班",
            "| 日期 | 值班 |\n| --- | --- |\n| 11月14日 | 林浩 |",
            ("11月15号", "11月14日"),
        ),
        (
            "who works on Nov 9?",
            "| Day | Who |\n| --- | --- |\n| 2026-11-03 | Ada |",
            ("Nov 9", "2026-11-03"),
        ),
        ("who works on Nov 3?", "| Day | Who |\n| --- | --- |\n| 2026-11-03 | Ada |", None),
        # what is said of every day stands beside the schedule
        (
            "11月15号谁值班",
            "值班员每天八点到岗。\n\n| 日期 | 值班 |\n| --- | --- |\n| 11月14日 | 林浩 |",
            ("11月15号", "11月14日"),
        ),
        ("11月5号谁值班", "11月2日至11月8日由林浩值班。", None),
        ("11月15号谁值班", "11月2日至11月8日由林浩值班。", ("11月15号", "11月2日")),
        ("11月5号还能报名吗", "报名截至11月10日。", None),
        ("Is it open on November 5?", "It is open from November 1.", None),
        ("11月5号还能报名吗", "报名截止时间为11月10日。", None),
        ("Can I register on Nov 5?", "Registration opens Nov 1 and closes Nov 10.", None),
        ("11月5日有效吗", "有效期：2026年11月1日—2026年11月30日", None),
        ("3月5日入职，有年假吗", "当年7月1日（含）前入职的有年假。", None),
        # over the end of the year
        ("12月30日谁值班", "12月28日至1月3日由林浩值班。", None),
        ("Is it closed on January 2?", "It is closed December 24 to January 3.", None),
        ("12月5日谁值班", "12月28日至1月3日由林浩值班。", ("12月5日", "12月28日")),
        # several days of one month
        ("11月6日谁值班", "11月5日、6日和7日由林浩值班。", None),
        ("11月5日谁值班", "11月2日（周一）至8日（周日）由林浩值班。", None),
        ("Is it closed on December 25?", "It is closed January 1, December 24 and 25.", None),
        ("Is it closed on November 6?", "It is closed on 5, 6 and 7 November.", None),
        # the day first, alone in a cell
        ("who works on Nov 5?", "| Day | Who |\n| --- | --- |\n| 5/11 | Ada |", None),
        ("who works on Nov 5?", "| F | T |\n| --- | --- |\n| 2/11 | 8/11 | Ada |", None),
        ("Who enters on Nov 5?", "Only 3 may enter.", None),
        ("11月5号谁值班", "- 11月2日：林浩\n- 11月9日：何俊", ("11月5号", "11月2日")),
        # a range and all days
        ("Is it open on Thursday?", "It is open Monday to Friday.", None),
        ("周四开门吗？", "周一至周五开门，周日休息。", None),
        ("Is it open on Sundays?", "It is open daily; on Monday from 9.", None),
        # no month, and no weekday
        ("May I leave early?", "In August all may.", None),
        ("多长时间备份？周一吗？", "每周一次，每次三个月的数据。", None),
    ],
)
def test_another_day_month_weekday_or_quarter_is_told(
    question: str, answer: str, told: Any
) -> None:
    assert find_other_date(question, answer, [HIT]) == told


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("韓國出差每日膳雜費多少", ("韩国", "日本")),
        ("美国出差每日膳雜費多少", None),
        ("新加坡出差每日膳雜費多少", None),  # another passage has it
        ("从日本到韩国要多久", None),
        ("出差每日膳雜費多少", None),
        ("成都出差每日膳雜費多少", None),  # no country
    ],
)
def test_another_place_is_told_where_no_passage_has_the_one_asked_for(
    question: str, told: Any
) -> None:
    text = "膳雜費：日本每日 85 美元，美國每日 90 美元。"
    passages = [hit(text), hit("新加坡另定。")]
    assert find_other_place(question, text, passages) == told


@pytest.mark.parametrize(
    "text", ["北京、上海每天500元，其他城市每天350元。", "加班申请提交给北京总部。"]
)
def test_a_place_that_is_named_for_another_reason_is_not_told(text: str) -> None:
    assert find_other_place("武汉的补贴和加班", text, [hit(text)]) is None


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        ("2021年营业收入是多少？", "2023年营业收入3.42亿元，2022年2.88亿元。", ("2021", "2023")),
        ("What was the revenue in FY2021?", "It was $2,023 million in 2023.", ("2021", "2023")),
        ("2021年营业收入是多少？", "2023年营业收入3.42亿元，2021年2.1亿元。", None),
        # numbers that are no year, a number of things
        ("2021年营业收入是多少？", "营业收入2023.5万元，负债2,022万元。", None),
        ("一次导出2000行吗？", "2023年起每次5000行。", None),
    ],
)
def test_another_year_is_told(question: str, answer: str, told: Any) -> None:
    assert find_other_year(question, answer, [HIT]) == told


def test_a_cited_passage_says_which_year_it_is_about() -> None:
    passage = dataclasses.replace(HIT, chunk_text="2021年概况。营业收入2.1亿元，2023年公布。")
    answer = "营业收入2.1亿元，2023年公布。 [1]"
    assert find_other_year("2021年营业收入是多少？", answer, [passage]) is None


def test_a_title_says_which_month_its_text_is_about() -> None:
    question, answer = "What was decided in April?", "The fee was raised. [2]"
    march, april = (
        dataclasses.replace(HIT, source_uri=f"minutes-2025-{month}.md") for month in ("03", "04")
    )
    query = prepare(question, Limits())
    told = ("the answer speaks of “2025-03”, the question of “April”",)
    assert find_doubts(query, answer, [april, march]) == told
    assert find_doubts(query, answer, [march, april]) == ()


def test_a_very_long_question_is_read_once() -> None:
    """Reading it from its beginning for each of its words would take minutes."""
    query = prepare("OR NOT" * 40_000 + " the waste", Limits(max_query_chars=300_000))
    assert find_doubts(query, WASTE, [hit(WASTE)]) == ()


def test_an_english_question_loads_no_chinese_dictionary() -> None:
    passage = hit(WASTE, "办公手册")
    chinese_dictionary.cache_clear()
    assert find_doubts(prepare("When is the waste collected?", Limits()), WASTE, [passage]) == ()
    assert chinese_dictionary.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("what does cp -b do", "-b"),  # of another command
        ("cp的-b选项是什么意思", "-b"),
        ("what does cp -f do", ""),
        ("what does ls -b do", ""),
        ("what does make -b do", ""),  # no passage is about it
        ("what does the -b option do", ""),
        ("how do I copy backups of each file to my disk, then run ls -b", ""),
    ],
)
def test_a_flag_of_another_command_is_told(question: str, told: str) -> None:
    texts = {"cp.txt": "-f, --force: remove it", "scp.txt": "-B: batch", "ls.txt": "-b: escape"}
    passages = [dataclasses.replace(hit(text), filename=name) for name, text in texts.items()]
    answer = "\n".join(f"{it.chunk_text} [{n}]" for n, it in enumerate(passages, 1))
    warnings = find_doubts(prepare(question, Limits()), answer, passages)
    assert warnings == ((f"what was found does not speak of “{told}”",) if told else ())
