"""Words with little meaning: function words, which are not searched for, and words that cannot be
the topic of a text.

Function words are removed because BM25 weights a word by its rarity, and `which` and `什么` are
rare in documentation. In Chinese, function words are interrogatives and their idioms, in simplified
and traditional characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rag_platform.text.scripts import UNSPACED_CHAR

# Lucene's stop set without its negations, and the interrogatives, auxiliaries and personal pronouns
FUNCTION_WORDS = frozenset(
    "a an and are as at be been but by can could did do does for from had has have he her his how i"
    " if in into is it its me my of on or our please she should such that the their then there"
    " these they this those to was we were what when where which who whom whose why will with would"
    " you your am".split()
)
# words with too little meaning to compare texts or questions by
WEAK_WORDS = FUNCTION_WORDS.union(
    """about all also any get gets give given gives got happen happens know known made make makes
    many may much must need no not said say says shall so tell tells than them told under us use
    used using want wants what's while""".split()
)
CHINESE_FUNCTION_WORDS = frozenset(
    """
    什么 怎么 如何 怎样 多少 为何 可以 能够 需要 应该 没有 告诉 一个 时候 有没 为什
    如果 还有 还是 大概 大约 当中 已经 因为 所以 以及 或者 比较 这些 那些 哪些 哪个 哪种 几个 几种
    多久 多大 多长 多高 多远 多快 多重 多宽 多深 多长时间 多長 多遠 多寬 多長時間
    能夠 應該 沒有 告訴 一個 時候 還有 還是 大約 當中 已經 因為 比較 這些
    """.split()
)
CHINESE_FUNCTION_CHARACTER = re.compile(
    "[的了是在和与與及或就都而也着著把被让讓给給向从從到对對为為于於之其这這那哪个個些吗嗎呢吧啊呀么麼怎请請问問我你他她它们們由谁誰几幾所]"
)

# words that are no topic; `keyphrases.stopwords.path` adds to them
ENGLISH = WEAK_WORDS.union(
    """above according across actually after again against ago almost along already although always
    among amount another anyone anything anyway aren't around available away back based became
    because become becomes before behind being below best better between beyond both called came
    can't cannot certain come comes considered corresponding couldn't currently day days describe
    described despite didn't different doesn't doing don't done down due during e.g each early
    easily either else enough especially et etc even ever every everyone everything exactly example
    examples far few fewer finally find first follow followed following follows former found full
    further furthermore gave general generally getting go goes going gone good great hadn't half
    hasn't haven't having he's help helps hence here here's hers herself him himself however i'd
    i'll i'm i've i.e important include included includes including indeed inside instead isn't
    it's itself just keep kept kind large larger last later latter least left less let let's like
    likely little long longer look looks lot mainly making maybe mean means might mine more
    moreover most mostly myself near nearly needed needs neither never nevertheless new next none
    nor note nothing now obtained off often old once one ones only onto other others otherwise ours
    ourselves out over own part particular per perhaps place possible present previous previously
    probably provide provided provides put quite rather really recent recently regarding
    respectively right same second see seem seems seen several shouldn't show showed shown shows
    similar simply since small some someone something sometimes somewhere soon still sure take
    taken takes taking that's theirs themselves there's therefore they're thing things third though
    three through throughout thus time times together too took toward towards tried try trying turn
    two unless unlike until up upon useful user's uses usual usually various very via wasn't way
    ways we'll we're we've well went weren't whatever whereas whether who's whole within without
    won't work works wouldn't year years yes yet you'd you'll you're you've yours yourself
    """.split()
)

# Parts of speech remove most small words of Chinese; these are the verbs, nouns and adjectives that
# are left.
CHINESE = CHINESE_FUNCTION_WORDS.union(
    """可能 应当 必须 希望 想要 开始 继续 进行 成为 作为 具有 拥有 存在 属于 包括 包含 使用 利用
    采用 通过 经过 达到 得到 获得 看到 发现 认为 觉得 知道 表示 指出 称为 叫做 说明 介绍 提供 提出
    提到 出现 发生 产生 造成 导致 引起 变成 保持 做出 作出 给出 进入 来到 来自 位于 关于 有关 相关
    根据 按照 随着 对于 由于 例如 比如 其中 其他 其它 其余 之前 之后 之间 之一 以上 以下 以前 以后
    以来 以内 以外 时间 时期 期间 当时 目前 现在 今天 今年 去年 昨天 明天 最近 近日 情况 问题 方面
    部分 方式 内容 原因 结果 过程 东西 事情 地方 大家 人们 自己 别人 个人 有人 一些 一种 一样 一般
    一起 一直 一定 一下 许多 很多 不少 大量 多数 少数 全部 所有 主要 重要 基本 一般来说 具体 不同
    相同 类似 同样 各种 各个 这个 那个 这样 那样 这种 那种 这里 那里 为什么 哪些 哪个 有些 有的
    有时 是否 就是 只是 不是 可是 但是 因此 虽然 而且 并且 下面 上面 上述 如下 以便 左右 前后 如图
    天数 天數 长时间 長時間 参见 请问 起来 出来 下来 下去""".split()
)


_CHINESE = (
    "(?:表示|代表)?(?:什么|什麼|甚麼)(?:意思)?|哪(?!吒)一?[些个個种種里裡儿兒位]?|多少|谁|誰|怎么样|怎麼樣|怎么|怎麼|怎样|怎樣|如何|为什么|為什麼|为何|為何"
    r"|何时|何時|何地|[是能可]否(?![定认認决決])|请问|請問|有没有|有沒有|是不是|能不能|分别|分別|已[经經]|已(?![知故婚])|[吗嗎呢](?!\w)"
    "|[几幾](?=[个個种種次年月日天人名位岁歲家座])"
)
# a part of an identifier, path, option, quotation or call is no function word: on_delete, what-if,
# --in, `for`, is()
_BEFORE, _AFTER = r"(?<![\w.\-/\\:@#$&+'’`])", r"(?![\w\-/\\@#&+`(]|[.:'’]\w)"
_CONTRACTED = r"(?:['’](?:s|re|ll|d|ve|m)(?!\w))?"
_SENTENCE_END = ".?!。？！"
_PUNCTUATION = " ,，、" + _SENTENCE_END
_LOOKED_BACK = 40  # characters


def remove_function_words(text: str, further: Sequence[str] = ()) -> str:
    """The text without function words and the `further` ones, on one line; unchanged if nothing
    would be left.

    Not removed are parts of identifiers, and words in capitals or with a capital inside a sentence
    (WHO, the Who, vitamin A), `I` excepted.

    >>> remove_function_words("What is the default of on_delete?")
    'default on_delete?'
    >>> remove_function_words("ge 和 le 分别表示什么？")
    'ge 和 le ？'
    """
    left = _cut_function_words(text, further)
    return left if any(map(str.isalnum, left)) else text


def is_only_function_words(text: str) -> bool:
    """True for a text with words, all of which are function words.

    >>> is_only_function_words("What is it?"), is_only_function_words("是什么")
    (True, True)
    """
    left = CHINESE_FUNCTION_CHARACTER.sub("", _cut_function_words(text))
    return left != text and not left.strip(_PUNCTUATION)


def _cut_function_words(text: str, further: Sequence[str] = ()) -> str:
    pieces: list[str] = []
    end = 0
    for match in _pattern(tuple(further)).finditer(text):
        if not _is_name(text, match):
            pieces.append(text[end : match.start()])
            end = match.end()
    return " ".join(" ".join([*pieces, text[end:]]).split())


def count_function_words(text: str) -> int:
    """How many runs of function words `remove_function_words` finds in a text."""
    return sum(not _is_name(text, match) for match in _pattern(()).finditer(text))


def _is_name(text: str, match: re.Match[str]) -> bool:
    word = match.group()
    if not word[0].isupper() or (word[0] == "I" and not word[1:].isalpha()):
        return False
    before = text[max(0, match.start() - _LOOKED_BACK) : match.start()].rstrip()
    return (len(word) > 1 and word.isupper()) or not (not before or before[-1] in _SENTENCE_END)


@lru_cache(maxsize=64)
def _pattern(further: tuple[str, ...]) -> re.Pattern[str]:
    spaced = [*sorted(FUNCTION_WORDS), *(it for it in further if not UNSPACED_CHAR.search(it))]
    unspaced = [word for word in further if UNSPACED_CHAR.search(word)]
    words = "|".join(map(re.escape, sorted(spaced, key=len, reverse=True)))
    runs = "|".join([*map(re.escape, sorted(unspaced, key=len, reverse=True)), _CHINESE])
    return re.compile(rf"{_BEFORE}(?:{words}){_CONTRACTED}{_AFTER}|{runs}", re.IGNORECASE)
