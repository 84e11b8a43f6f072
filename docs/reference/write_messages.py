"""Write the pages of all known messages from the knowledge base: `python docs/reference/write_messages.py`."""

from pathlib import Path

from headrace.knowledge import advice, entries, look_up, render_markdown

WORDS = {
    "en": {
        "title": "Messages and what they truly mean",
        "intro": (
            "{entries} messages of torch, its neighbours, the kernel and Slurm: what each one says, its true causes "
            "with the check that decides between them, what to do, and what does not help. And {advice} pieces of "
            "well-known advice that are wrong or half true. This page is written by `write_messages.py` from data in "
            "`src/headrace/knowledge/data`; change it there. [简体中文](messages.zh-CN.md)"
        ),
        "advice": "Well-known advice that is wrong, or half true",
        "instead": "Instead",
        "sources": "Sources",
        "verified": "Verified",
        "colon": ": ",
        "stop": ". ",
    },
    "zh": {
        "title": "报错信息与它们的真正含义",
        "intro": (
            "torch 及其周边、内核和 Slurm 的 {entries} 条信息：每条到底在说什么、真正的原因以及区分它们的检查、"
            "怎么做、哪些做法没有用；另有 {advice} 条广为流传但错误或只对一半的建议。"
            "本页由 `write_messages.py` 根据 `src/headrace/knowledge/data` 中的数据生成，请修改那里的数据。"
            "[English](messages.md)"
        ),
        "advice": "广为流传但错误或只对一半的建议",
        "instead": "应该怎么做",
        "sources": "出处",
        "verified": "核实情况",
        "colon": "：",
        "stop": "。",
    },
}
NAMES = {"en": "messages.md", "zh": "messages.zh-CN.md"}


def page(language: str) -> str:
    words = WORDS[language]
    colon = words["colon"]
    parts = [f"# {words['title']}", words["intro"].format(entries=len(entries()), advice=len(advice()))]
    parts += [render_markdown(look_up(entry.examples[0])[:1], language) for entry in entries()]
    parts.append(f"## {words['advice']}")
    for one in advice():
        parts += [
            f"### {one.id} {one.title.of(language)}",
            one.truth.of(language),
            f"**{words['instead']}**{colon}{one.instead.of(language)}",
            f"{words['sources']}{colon}{', '.join(one.sources)}{words['stop']}"
            f"{words['verified']}{colon}{one.verified.of(language)}",
        ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for language, name in NAMES.items():
        Path(__file__).with_name(name).write_text(page(language), encoding="utf-8")
