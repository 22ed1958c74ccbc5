"""The words by which a question names languages, kinds of files and numbers; `a,b: x` names x by a and by b."""

from __future__ import annotations

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
# Content types as the loaders sniff them.
TYPES = {
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
NUMBERS = {
    "一": 1, "两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10,
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
}  # fmt: skip
# The rules are written in simplified characters; these stand for traditional ones, character by character, so that places stay.
SIMPLIFIED = str.maketrans(
    "標籤來質圖檔資週個關於報僅麼裡內兩後發佈這過錄獻冊筆記頁從檢請幫語視頻電網純鍵詞總結紹說釋講談歸納對較綜簡詳體闡羅舉煩勞駕為給",
    "标签来质图档资周个关于报仅么里内两后发布这过录献册笔记页从检请帮语视频电网纯键词总结绍说释讲谈归纳对较综简详体阐罗举烦劳驾为给",
)
