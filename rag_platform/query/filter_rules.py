"""The wordings by which a question asks for a filter or a preference, or gives a command: data.

Patterns are in simplified Chinese and ignore case; `<LANGUAGE>`, `<TYPE>` and `<NAME>` stand for
the known names of languages, of kinds of files, and of both. The group `said` is what is taken
out of the question. Repetitions are bounded, so that no question makes a pattern slow.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from rag_platform.text.scripts import HAN


@dataclass(frozen=True, slots=True)
class Rule:
    """Patterns that are read in the same way: by the reader of that name, as that preference, or as
    a command.

    `hints`: a pattern can match only a lower-case question that holds one string of each group.
    """

    name: str
    hints: tuple[tuple[str, ...], ...]
    patterns: tuple[str, ...]

    def compiled(self, lowered: str) -> tuple[re.Pattern[str], ...]:
        """The patterns worth trying on a question; compiled when they are first needed."""
        hinted = all(any(hint in lowered for hint in hints) for hints in self.hints)
        return compile_patterns(self.patterns) if hinted else ()


@functools.lru_cache(maxsize=128)
def compile_patterns(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """The compiled patterns, remembered."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


# Traditional characters to simplified ones, one for one, so that positions stay.
SIMPLIFIED = str.maketrans(
    "標籤來質圖檔資週個關於報僅麼裡內兩後發佈這過錄獻冊筆記頁從檢請幫語視頻電網純鍵詞總結紹說釋講談歸納對較綜簡詳體闡羅舉煩勞駕為給",
    "标签来质图档资周个关于报仅么里内两后发布这过录献册笔记页从检请帮语视频电网纯键词总结绍说释讲谈归纳对较综简详体阐罗举烦劳驾为给",
)

# --- names: `a,b: x` names x by a and by b --------------------------------------------------------

_OOXML = "application/vnd.openxmlformats-officedocument."
LANGUAGES = {
    "中文,简体中文,繁体中文,汉语,中文版,zh,zh_cn,chinese": "zh",
    "英文,英语,英文版,english": "en",
    "日文,日语,日文版,japanese": "ja",
    "韩文,韩语,韩文版,korean": "ko",
    "法文,法语,french": "fr",
    "德文,德语,german": "de",
    "西班牙文,西班牙语,spanish": "es",
    "俄文,俄语,russian": "ru",
}
CONTENT_TYPES = {  # as the loaders sniff them
    "pdf": "application/pdf",
    "word,docx": _OOXML + "wordprocessingml.document",
    "excel,xlsx,电子表格,spreadsheet": _OOXML + "spreadsheetml.sheet",
    "csv": "text/csv",
    "markdown,md": "text/markdown",
    "html,网页": "text/html",
    "txt,纯文本,plain text": "text/plain",
}
MEDIA_TYPES = {
    "图片,图像,image,picture": "image",
    "文本,text": "text",
    "视频,video": "video",
    "音频,audio": "audio",
}

# --- pieces of patterns ---------------------------------------------------------------------------

# a clause of its own begins and ends here
_L = r"(?:^|(?<=[,，。.;；:!！?？(（\[【|])|(?<=\s[-–—]\s))\s*"
_R = r"(?=\s*(?:$|[,，。.;；:!！?？)）\]】|]))"
_END = r"(?=\s*[?？。.!！)）]?\s*$)"
_APART = r"(?:^|(?<=[\s,，。;；(（]))"
# A question about how things are done speaks of its nouns and asks for no documents.
_NO_HOW = (
    r"(?!.*(?:如何|怎么|怎样|为什么|为何|能否|能不能|可以|是否|步骤|方法"
    r"|\b(?:how|why|can|could)\b|\btranslat|\bcontribut))"
    r"(?!(?:is|are|was|were|does|do|did|will|would|should|has|have)\b)"
)
_NO_USE = (
    r"(?!.*\b(?:supports?|accepts?|speaks?|available|releas|publish|works?|allow|reads?|opens?"
    r"|export|import|upload|convert|convers))"
)
_SAYS = (
    r"(?=.*\b(?:say|says|said|mention|describ|find|search|look|documented|covered?|explain"
    r"|stated?|about|tell|read))"
)
_NO_BUILD = r"(?!.*\b(?:build|built|install|compil|run|deploy|packag|open))"
_NOT_DONE = "".join(  # something is done with the documents that follow
    f"(?<!{verb})"
    for verb in (
        "打开 创建 新建 编辑 转换 转为 转成 生成 导出 导入 上传 下载 读取 解析 保存 处理 打印 加密"
        " 合并 拆分 制作 支持 使用 输出 插入"
    ).split()
)
_DOC = r"(?:文档|文件|档案|资料|材料|文章|手册|笔记|报告)"
_DOC_LOOSE = rf"(?:{_DOC}|页面|文献|记录|内容)"
_DOCS = (
    r"(?:documents|docs|files|pages|articles|notes|papers|reports|entries|guides|manuals|sources"
    r"|slides)"
)
_DOC_EN = rf"(?:{_DOCS}|file|document|documentation|page|results|ones|texts?|content|material)"
_FORM = r"\s*(?:格式|类型|版)?的?\s*"
_INSIDE = r"(?:里面?|中|内)?"
_PERIOD = (
    r"(?:最近|近|过去)这?\s*(?P<count>\d{1,3}|[一两二三四五六七八九十]{1,3}|半)"
    r"\s*(?P<unit>个?月|天|日|周|个?星期|个?礼拜|年)(?:之?内|以来|里)?"
)
_ADDED = r"(?:新增|更新|上传|入库|收录|导入|添加)"
_PERIOD_EN = (
    r"(?:(?:in|from|within|over|during|of)\s+)?(?:the\s+)?(?:last|past)\s+"
    # the last week is seven days; the last year may be the one in the calendar
    r"(?:(?P<count>\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten)\s+"
    r"|(?=(?:week|month)\b))(?P<unit>days?|weeks?|months?|years?)\b"
)
_ADDED_EN = (
    r"(?:(?:that\s+(?:were|are)\s+)?(?:newly\s+)?"
    r"(?:added|updated|uploaded|ingested|received|changed)\s+)"
)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DATE_ZH = (
    rf"(?<!据)(?<!依照)(?<!按照)(?P<said_date>{_YEAR}\s*年\s*(?:(?P<month>\d{{1,2}})\s*月份?\s*"
    r"(?:(?P<day>\d{1,2})\s*[日号])?)?\s*(?P<bound>以来|以后|之后|后|起|以前|之前|前)?\s*"
    r"(?:发布|更新|上传|新增|创建|编写)?\s*的?)"
)
_ISO = rf"{_YEAR}(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?)?(?![\w-])"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE_EN = (
    r"(?:(?:that\s+(?:were|are)\s+)?(?:dated|written|created|published|updated|added|uploaded)\s+)?"
    r"(?:(?P<bound>since|after|before|until|from)|in|of|dated)\s+"
)
_SCORE = (
    r"\s*(?P<value>0?\.\d{1,4}|1(?:\.0{1,4})?|0(?:\.\d{1,4})?|\d{1,3}(?=\s?%))"
    r"(?!\d|\.\d)\s?(?P<percent>%)?"
)
_NO_UNIT = r"(?!\s*(?:[kmµ]?g\b|千克|公斤|毫?克|吨|斤|倍|太阳|地球|lbs?\b|u\b|Da\b))"
_QUALITY = r"质量(?:分数?|评分|得分)?\s*"
_MORE = r"(?P<operator>>=|≥|>)"
_MORE_ZH = r"(?P<operator>大于等于|不低于|不小于|大于|高于|超过|至少为?)"
_MORE_EN = (
    r"(?P<operator>>=|≥|>|(?:of\s+)?at least|above|over|greater than|higher than|more than"
    r"|better than|not below|no less than)"
)
_QUOTED = r"[\"“「']\s{0,9}(?P<quoted>[^\s\"”」'][^\"”」'\n]{0,59})[\"”」']"
_NO_QUESTION = r"(?!\S{0,30}(?:怎么|如何|什么|哪|吗|多少))"
_VALUE_ZH = (
    rf"(?:{_QUOTED}|(?P<value>{_NO_QUESTION}[^\s,，。.;；:?？!！()（）【】《》|\"'“”「」的]{{1,30}}+)"
    r"(?!\s*:))"
)
_NO_SOURCE = (
    r"(?!(?:code|codes|control|files?|trees?|repos?|repository|data|images?|ip|ips|url|urls|text"
    r"|documents?|tables?|maps?|to)\b)"
)
_SEE = r"(?:只看|只查|只搜索?|只找|只检索|仅看|仅查|仅搜索?|仅检索)"
_NAMED_EN = rf"<NAME>(?:\s+{_DOC_EN})?"
_WITHIN = r"(?:in|from|among|across|within)\s+(?:the|our|my|all)\s+"
_AMONG = rf"(?P<said><NAME>{_FORM})(?=(?:<OTHER>{_FORM})?"  # between a time and its documents
_AMONG_PERIOD = rf"{_PERIOD}\s*的?\s*(?:{_ADDED}[了过]?的?\s*)?{_AMONG}{_DOC}(?!综述))"
_AMONG_DATE = rf"{_DATE_ZH}\s*{_AMONG}(?:文档|文件|笔记))"


def _labelled(chinese: str, english: str) -> tuple[str, str]:
    """`标签：发票`, `tag:api`."""
    return (
        rf"(?:{_APART}|(?<=带)|(?<=有)|(?<=打了))(?P<said>{chinese}\s*[:=]\s*{_VALUE_ZH}"
        rf"(?:的(?=\s*{_DOC_LOOSE})|的?(?=\s*$))?)",
        rf"{_APART}(?P<said>{english}\s?[:=](?:\s?{_QUOTED}|(?P<value>[\w.+#/-]{{1,60}})))",
    )


_PERIODS = ("近", "过去", "last", "past")
_YEARS = ("19", "20")
_BESIDE_NAMES = tuple(
    "只 仅 限 文 资料 材料 手册 笔记 报告 only just limit restrict the our my all".split()
)

# --- filters, in the order in which they are tried ------------------------------------------------

FILTERS: tuple[Rule, ...] = (
    Rule(
        "tags",
        (("标签", "tag", "#"),),
        (
            *_labelled("标签", "tags?"),
            rf"(?P<said>标签[为是]\s*{_VALUE_ZH}的)(?=\s*{_DOC_LOOSE})",
            r"(?<=\s)(?P<said>#(?!(?:include|define|ifdef|ifndef|endif|pragma|undef|error|import"
            rf"|region|endregion|[0-9a-f]{{3}}|[0-9a-f]{{6}}|[0-9a-f]{{8}})\b){_NO_QUESTION}"
            r"(?P<value>[^\W\d_]\w{1,39}))(?=\s*[?？。.!！]?$)",
            rf"\b(?P<said>(?:tagged(?:\s+(?:with|as))?|with\s+(?:the\s+)?tag)\s+{_QUOTED})",
            rf"\b{_DOCS}\s+(?P<said>(?:tagged(?:\s+(?:with|as))?|with\s+the\s+tag)\s+"
            r"(?P<value>[\w.+#-]{2,40}))"
            r"(?=\s*(?:$|[,.;?!)]|(?:about|on|for|that|which|mention|describ|explain)))",
        ),
    ),
    Rule("keyphrases", (("关键", "keyword"),), _labelled("关键[词字]", "keywords?")),
    Rule(
        "source",
        (("来源", "source"),),
        (
            *_labelled("来源", "source"),
            rf"{_APART}(?P<said>来源\s+{_NO_SOURCE}(?P<value>[A-Za-z0-9][\w.-]{{1,59}})){_R}",
            rf"^{_NO_BUILD}.{{1,400}}?\b(?P<said>(?:only\s+)?(?:in|from)\s+(?:the\s+)?source\s+"
            rf"{_NO_SOURCE}(?P<value>[A-Za-z0-9][\w-]{{1,59}})){_END}",
        ),
    ),
    Rule(
        "quality_score",
        (("质量", "quality"), tuple("0123456789")),
        (
            rf"(?P<said>{_QUALITY}{_MORE}{_SCORE}{_NO_UNIT}(?:以上)?的?)"
            rf"(?:(?<=的)\s*(?={_DOC_LOOSE})|(?<!的)(?=\s)|(?<!的){_R})",
            rf"{_APART}(?P<said>{_QUALITY}{_MORE_ZH}{_SCORE}{_NO_UNIT}(?:以上)?)"
            r"(?=\s+(?!的|[小低少不]|[且并或和与到至以<]))",
            rf"(?P<said>{_QUALITY}{_MORE_ZH}{_SCORE}{_NO_UNIT}(?:以上)?的?)"
            rf"(?:(?<=的)\s*(?={_DOC_LOOSE})|(?<!的){_R})",
            rf"(?:{_L}|\b{_DOC_EN}\s+|\b(?=with\s))(?P<said>(?:with\s+)?(?:a\s+)?"
            rf"quality(?:[_ ]score)?\s*{_MORE_EN}{_SCORE})(?![\w.]){_NO_UNIT}",
        ),
    ),
    Rule(
        "name",
        (("<NAME>",), (*_PERIODS, *_YEARS)),
        # the first one twice, for a language and a kind of file
        (
            *(_AMONG_PERIOD, _AMONG_PERIOD, _AMONG_DATE),
            rf"(?P<said><NAME>)\s+(?={_DOCS}\s+(?:{_ADDED_EN}?{_PERIOD_EN}"
            rf"|{_DATE_EN}(?:{_ISO}|{_MONTH}\s+(?:19|20)\d\d)))",
        ),
    ),
    Rule(
        "created_at",
        (_PERIODS,),
        (
            rf"(?P<said>{_PERIOD}\s*的?\s*(?:{_ADDED}[了过]?的?\s*)?{_DOC}[里中内]面?的?)",
            rf"(?P<said>{_PERIOD}\s*的?\s*(?:{_ADDED}[了过]?的?\s*)?)(?={_DOC}(?!综述))",
            rf"^(?P<said>{_PERIOD})(?=[\s,，].*(?:文档|资料|文件|材料|手册))",
            rf"^(?=.*(?:文档|资料|文件|材料|手册)).{{1,400}}?[\s,，](?P<said>{_PERIOD}){_END}",
            rf"\b{_DOCS}\s+(?P<said>{_ADDED_EN}?{_PERIOD_EN})",
            r"[,;(]\s*(?P<said>(?:the\s+)?(?:last|past)\s+(?P<count>\d{1,3})\s+"
            rf"(?P<unit>days|weeks)){_END}",
        ),
    ),
    Rule(
        "doc_date",
        (_YEARS,),
        (
            # 资料 of a year are its data
            rf"{_DATE_ZH.replace('said_date', 'said')}(?=\s*(?:文档|文件|笔记))",
            rf"\b{_DOCS}\s+(?P<said>{_DATE_EN}{_ISO})",
            rf"\b{_DOCS}\s+(?P<said>{_DATE_EN}(?P<month>{_MONTH})\s+{_YEAR})\b",
        ),
    ),
    Rule(
        "name",
        (("<NAME>",), _BESIDE_NAMES),
        (
            rf"{_L}(?P<said>请?(?:帮我)?(?:{_SEE}|仅限于?|限定为?|限于)\s*[在从]?\s*<NAME>{_FORM}"
            rf"(?:{_DOC_LOOSE}{_INSIDE}的?|{_R}|(?=\s)))",
            rf"(?<=\s)(?P<said>请?(?:帮我)?{_SEE}\s*[在从]?\s*<NAME>{_FORM}{_DOC_LOOSE}?"
            rf"{_INSIDE}的?){_END}",
            rf"{_L}(?P<said>请?(?:只要|仅|限|只用|只需要?|只在)\s*<NAME>{_FORM}{_DOC_LOOSE}?"
            rf"{_INSIDE}){_R}",
            rf"^(?P<said>请?[在从]?(?:搜索?|查找?|检索)?\s*<NAME>{_FORM}{_DOC_LOOSE}{_INSIDE}\s*:)",
            rf"(?:哪些|哪几?份|哪个)\s*(?P<said><NAME>{_FORM}{_DOC})"
            r"(?=[里中]?(?:提到|提及|讲|说|写|包含|涉及|介绍|规定|描述))",
            rf"^{_NO_HOW}.{{0,200}}?(?:(?:关于|有关).{{1,80}}的|相关的|有没有|有哪些|找|给我|列出"
            rf"|搜索)(?P<said>\s*<NAME>{_FORM}{_DOC})(?:有哪些|有吗|吗)?{_END}",
            rf"^{_NO_HOW}.{{0,200}}[{HAN}]{_NOT_DONE}\s+(?P<said><NAME>{_FORM}{_DOC})$",
            rf"{_L}(?P<said>(?:please\s+)?(?:(?:in|from)\s+)?(?:the\s+)?{_NAMED_EN}\s+only"
            rf"(?:\s+please)?){_R}",
            rf"^{_NO_HOW}{_NO_USE}.{{0,80}}\w\s+(?P<said>{_NAMED_EN}\s+only){_END}",
            r"^(?P<said>(?:please\s+)?(?:search|look|check|show|list|find|give)\s+(?:me\s+)?only\s+"
            rf"(?:(?:in|through|at)\s+)?(?:the\s+)?{_NAMED_EN}(?:\s+for)?)\s",
        ),
    ),
    Rule(
        "name",
        (("<LANGUAGE>",), _BESIDE_NAMES),
        (
            rf"^(?P<said>请?[在从]\s*<LANGUAGE>{_FORM}{_DOC_LOOSE}(?:里面?|中|内)),",
            rf"^(?P<said>{_WITHIN}<LANGUAGE>\s+(?:{_DOCS}|documentation)\s*[,:])",
        ),
    ),
    Rule(
        "name",
        (("<TYPE>",), _BESIDE_NAMES),
        (rf"^{_NO_HOW}{_SAYS}.{{1,400}}?\b(?P<said>{_WITHIN}<TYPE>\s+{_DOCS}){_END}",),
    ),
)

# --- preferences: a pattern without `said` is one whose words may be the subject as well ----------

_GUIDES = (
    r"(?:docs?|documentation|documents?|guides?|guidelines?|sources?|manuals?|references?"
    r"|tutorials?|handbooks?)"
)
_PICTURE = r"(?:pictures?|images?|figures?|diagrams?|screenshots?|photos?|illustrations?)"
_WITH_PICTURE = rf"with\s+(?:an?\s+|some\s+)?{_PICTURE}"
PREFERENCES: tuple[Rule, ...] = (
    Rule(
        "prefer_recent",
        (("最新", "最近", "latest", "newest", "recent"),),
        (
            r"(?P<said>最新的?)",
            rf"(?<![离距与])(?P<said>最近的?)(?={_DOC}|更新|规定|政策|公告|通知)",
            r"(?P<said>(?<!at )\bthe latest\b|(?:^|(?<=[,;] ))latest\b|\bnewest\b"
            r"|\bmost recent\b)(?!-)",
        ),
    ),
    Rule(
        "prefer_official",
        (("官方", "official"),),
        (
            r"(?P<said>官方(?:发布的?|(?:文档|资料|手册|说明|指南|教程)(?:里面?|中(?!文)|内)?的?"
            r"|(?=来源|网站|公告|渠道|答复|解释|版本的))|优先官方)",
            rf"\b(?P<said>official(?:\s+{_GUIDES}|(?=\s+(?:announcements?|statements?))))\b",
        ),
    ),
    Rule(
        "prefer_has_image",
        (("图", " with "),),
        (
            r"(?:^|(?<=[\s,，。;；!！?？]))(?P<said>(?:要|最好)?(?:带有?|附|含有?|包含|配)"
            rf"(?:图片|截图|示意图|图(?![标像形表例层书]))的?)(?:{_END}|(?<=的)|(?={_DOC}))",
            rf"^{_NO_HOW}.{{1,400}}?[\s,;](?P<said>{_WITH_PICTURE}){_END}",
            rf"^{_NO_HOW}.{{0,400}}?\b(?P<said>{_GUIDES}\s+with\s+{_PICTURE})\b",
        ),
    ),
)

# --- commands: what is to be done with what is found ----------------------------------------------

_PLEASE = (
    r"(?:(?:please|kindly|just|now|(?:can|could|would|will) you|help me(?:\s+to)?"
    r"|i(?:'d|\s+would)?\s+(?:want|need|like)(?:\s+you)?(?:\s+to(?:\s+(?:have|see|get))?)?)"
    r"[,\s]+){0,3}"
)
_SIZE = (
    r"(?:(?:an?|the|some|any|all|every|more|further|brief|short|quick|concise|detailed|general"
    r"|complete|full|high-level)\s+){0,4}"
)
_ACCOUNT = (
    rf"{_SIZE}(?:(?:summary|overview|outline|explanation|description|introduction|comparison|tl;dr)"
    r"\s+(?:of|on|about|for|to|between)"
    r"|(?:documents?|docs|documentation|articles?|pages?|sections?|passages?|guides?|materials?"
    r"|information|info|details|news)\s+(?:that\s+(?:is|are)\s+)?"
    r"(?:about|on|regarding|concerning|(?<=guide )to))"
)
_PLEASE_ZH = (
    r"(?:请(?!求)|麻烦|劳驾|能否|能不能|可以|可否|帮我|帮忙|给我|为我|替我|我(?:想要?|要|需要)"
    r"|你|您){0,4}"
)
COMMANDS: tuple[Rule, ...] = (
    Rule(
        "command",
        (),
        (
            rf"^(?P<said>{_PLEASE}(?:summari[sz]e|recap|explain|describe|discuss|outline|compare)"
            r"(?:\s+(?:briefly|in\s+(?:detail|brief|short)|(?:to|for)\s+(?:me|us))){0,2}"
            rf"(?:\s+{_ACCOUNT})?)(?=[\s:,])",
            rf"^(?P<said>{_PLEASE}(?:(?:show|tell|give|get|find|send|write|provide|list"
            rf"|search\s+for|look\s+(?:for|up))\s+(?:(?:me|us)\s+)?)?{_ACCOUNT})(?=[\s:,])",
            rf"^(?P<said>{_PLEASE}(?:(?:show|tell|give|get|find|list)\s+(?:me|us)"
            r"(?:\s+(?:about|all))?|list\s+(?:all|every)|tl;dr))(?=[\s:,])",
        ),
    ),
    Rule(
        "command",
        (("summ", "brief", "overview", "tl;dr", "in short"),),
        (
            r"\w(?P<said>\s*[,;:.]\s*(?:please\s+)?(?:summari[sz]ed?|briefly|tl;dr"
            rf"|in\s+(?:short|brief)|{_SIZE}(?:summary|overview))){_END}",
            r"^(?!.*\b(?:what|which|where|who|how|the|an?|is|are|in)\b).{1,200}?\w"
            rf"(?P<said>\s+(?:summary|overview)){_END}",
        ),
    ),
    Rule(
        "command",
        (),
        (
            # not 说明书, 解释器, 总结会
            rf"^(?P<said>{_PLEASE_ZH}(?:简单|简要|简短|简洁|大致|大概|详细|具体|全面)?地?"
            r"(?:总结|概括|概述|归纳|梳理|综述|介绍|说明|解释|描述|阐述|讲解|列出|列举|罗列|说说"
            r"|讲讲|谈谈|聊聊|对比|比较)(?:一下|一遍|(?![书信器符法性会文员者度型表]))"
            r"(?:关于|有关)?)",
            rf"^(?P<said>{_PLEASE_ZH}(?:查找?|查询|找|搜索?|检索|看)一下(?:关于|有关)?)",
            rf"^(?P<said>{_DOC}{_INSIDE})(?=[\s,，:])",  # what is left of 近一周的文档
        ),
    ),
    Rule(
        "command",
        (("总结", "概", "归纳", "摘要", "简介", "综述", "一下"),),
        (
            rf"^{_NO_HOW}.{{1,200}}?\w(?P<said>(?:的|\s|[,，。]|进行|做一?个){{1,3}}"
            rf"(?:总结|概括|概述|归纳|摘要|概要|简介|综述)(?:一下)?){_END}",
            rf"^{_NO_HOW}.{{1,200}}?\w(?P<said>(?:总结|概括|归纳|梳理|介绍|说明)一下){_END}",
        ),
    ),
)
