"""Words that name no subject, in English and Chinese; `keyphrases.stopwords.path` adds to them."""

from __future__ import annotations

ENGLISH = frozenset(
    """
    a about above according across actually after again against ago all almost along already also although always am among amount an and
    another any anyone anything anyway are aren't around as at available away back based be became because become becomes been before
    behind being below best better between beyond both but by called came can can't cannot certain come comes considered could corresponding
    couldn't currently day days describe described despite did didn't different do does doesn't doing don't done down due during e.g each
    early easily either else enough especially et etc even ever every everyone everything exactly example examples far few fewer find
    finally first follow followed following follows for former found from full further furthermore gave general generally get gets
    getting give given gives go goes going gone good got great had hadn't half has hasn't have haven't having he he's help helps hence
    her here here's hers herself him himself his how however i i'd i'll i'm i've i.e if important in include included includes including
    indeed inside instead into is isn't it it's its itself just keep kept kind know known large larger last later latter least left less
    let let's like likely little long longer look looks lot made mainly make makes making many may maybe me mean means might mine more
    moreover most mostly much must my myself near nearly need needed needs neither never nevertheless new next no none nor not note
    nothing now obtained of off often old on once one ones only onto or other others otherwise our ours ourselves out over own part
    particular per perhaps place please possible present previous previously probably provide provided provides put quite rather really
    recent recently regarding respectively right said same say says second see seem seems seen several shall she should shouldn't
    show showed shown shows similar simply since small so some someone something sometimes somewhere soon still such sure take taken
    takes taking tell than that that's the their theirs them themselves then there there's therefore these they they're thing things
    third this those though three through throughout thus time times to together too took toward towards tried try trying turn two
    under unless unlike until up upon us use used useful user's uses using usual usually various very via want wants was wasn't way
    ways we we'll we're we've well went were weren't what what's whatever when where whereas whether which while who who's whole whom
    whose why will with within without won't work works would wouldn't year years yes yet you you'd you'll you're you've your yours
    yourself
    """.split()
)

# Parts of speech remove most small words of Chinese; these are the verbs, nouns and adjectives that are left.
CHINESE = frozenset(
    """
    没有 可以 可能 能够 应该 应当 需要 必须 希望 想要 开始 继续 进行 成为 作为 具有 拥有 存在 属于 包括 包含 使用 利用 采用 通过 经过 达到
    得到 获得 看到 发现 认为 觉得 知道 表示 指出 称为 叫做 说明 介绍 提供 提出 提到 出现 发生 产生 造成 导致 引起 变成 保持 做出 作出 给出
    进入 来到 来自 位于 关于 有关 相关 根据 按照 随着 对于 由于 例如 比如 其中 其他 其它 其余 之前 之后 之间 之一 以上 以下 以前 以后 以来
    以内 以外 时候 时间 时期 期间 当时 目前 现在 今天 今年 去年 昨天 明天 最近 近日 情况 问题 方面 部分 方式 内容 原因 结果 过程 东西 事情
    地方 大家 人们 自己 别人 个人 有人 一些 一个 一种 一样 一般 一起 一直 一定 一下 许多 很多 不少 大量 多数 少数 全部 所有 主要 重要 基本
    一般来说 具体 不同 相同 类似 同样 各种 各个 这个 那个 这些 那些 这样 那样 这种 那种 这里 那里 什么 怎么 怎样 如何 为什么 哪些 哪个
    多少 有些 有的 有时 是否 就是 还是 只是 不是 可是 但是 因此 所以 如果 虽然 而且 或者 以及 并且 下面 上面 上述 如下 以便 左右 前后 如图
    参见 请问 起来 出来 下来 下去
    """.split()
)
