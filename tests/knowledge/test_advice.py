"""Well-known wrong advice is recognised in text, in both languages, and not where a text warns of it."""

from headrace.knowledge import advice, find_advice

from .logs import HEALTHY

EXAMPLES = [(one, text) for one in advice() for text in one.examples]


def test_advice_is_recognised_as_people_word_it() -> None:
    for one, text in EXAMPLES:
        found = find_advice(f"## Tips\n\n- {text}\n\nThat is all.\n")
        assert [(item.advice.id, item.line) for item in found] == [(one.id, 3)], text


NO_ADVICE = [
    "Do not call set_sharing_strategy('file_system'): it does not help.",
    "不要用 gc.disable()",
    "never set allow_pickle=True for this",
    "The loader was given num_workers=8 and prefetch_factor=2.",
    "gpu utilisation is 93 %",
    "we convert HDF5 to tar shards",
    *HEALTHY,
]


def test_a_warning_or_a_setting_is_not_advice() -> None:
    for text in NO_ADVICE:
        assert find_advice(text) == (), text


def test_a_users_guide_is_read_line_by_line() -> None:
    guide = """
### 问题 2: Shared Memory 不足
1. **使用 file_system 共享策略**（训练脚本中添加）：
   mp.set_sharing_strategy('file_system')
3. **增加 shuffle_buffer_size**（减少随机读取）：
内存使用 ≈ num_workers × prefetch_factor × batch_size × 单样本大小
**GPU 利用率高 (>90%)** → 计算是瓶颈
"""
    assert [(one.advice.id, one.line) for one in find_advice(guide)] == [("T04", 3), ("T17", 5), ("T05", 6), ("T08", 7)]
