"""Labels of boxes in books and manuals, such as `Note` and 注意, which look like headings but begin
no section.
"""

from __future__ import annotations

_LABELS = frozenset(
    (
        "note tip hint warning caution important attention danger"
        " 注 注意 注记 注記 提示 小提示 小贴士 技巧 警告 小心 重要 危险 危險 备注 備註"
        " ヒント ティップ 重要事項 참고 주의 경고 팁"
        " hinweis warnung achtung tipp anmerkung wichtig"
        " remarque astuce avertissement attention nota aviso advertencia consejo sugerencia"
        " importante suggerimento avvertimento attenzione cuidado dica"
        " примечание замечание внимание предупреждение подсказка важно"
        " uwaga wskazówka ostrzeżenie"
    ).split()
)


def is_box_label(text: str) -> bool:
    """True for the label of a box, in the usual languages of manuals.

    >>> is_box_label("Note:"), is_box_label("注意"), is_box_label("Notes on hardware")
    (True, True, False)
    """
    return text.strip().rstrip(":：!！").rstrip().lower() in _LABELS
