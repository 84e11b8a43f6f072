"""One message as people paste it: cut, wrapped, coloured, in Chinese text, or only described."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.knowledge import MessageEntry, entries, look_up
from headrace.knowledge.entries import by_name

from .logs import ALIKE, HEALTHY
from .test_scanner import EXAMPLES


def ids(text: str) -> list[str]:
    return [one.entry.id for one in look_up(text)]


def test_every_message_is_looked_up_by_its_text() -> None:
    for entry, text in EXAMPLES:
        assert ids(text) == [entry.id], text
        assert ids(f"大家好，训练时报错：{text}\n请问怎么解决？") == [entry.id], text


CUT = [
    ("RuntimeError: DataLoader worker (pid 2811) is killed by signal: Kil", ["KB-01"]),
    ("prefetch_factor option could only be specified in multipro", ["KB-27"]),
    ("… to allocate shared memory(shm) for file </torch_1_2_3>: No space left on dev", ["KB-09"]),
    ("RuntimeError: Trying to resize storage that is not resi", ["KB-29"]),
    ("pected bus error encountered in worker. This might be caused by insufficient", ["KB-03"]),
    ("zipfile.BadZipFile: Bad CRC-32 fo", ["KB-31"]),
]


def test_a_message_that_was_cut_is_found_as_a_part() -> None:
    for text, expected in CUT:
        assert ids(text) == expected, text


def test_a_cut_that_fits_several_messages_names_them_all() -> None:
    found = look_up("RuntimeError: DataLoader worker (pid 2811) is killed by si")
    assert {one.entry.id for one in found} == {"KB-01", "KB-03", "KB-04", "KB-06", "KB-07"}
    assert all(one.is_partial for one in found)


def test_a_wrapped_message_is_found() -> None:
    text = """
    RuntimeError: unable to open shared memory object
      </torch_16088_3019500203_12> in read-write
      mode: Too many open files (24)"""
    (found,) = look_up(text)
    assert found.entry.id == "KB-14"
    assert found.values["errno"] == ("24",)


def test_colours_of_a_rich_traceback_do_not_matter() -> None:
    text = (
        "\x1b[1;91mRuntimeError: \x1b[0mDataLoader worker \x1b[1m(\x1b[0mpid \x1b[1;36m2811\x1b[0m\x1b[1m)\x1b[0m "
        "is killed by signal: Killed."
    )
    (found,) = look_up(text)
    assert (found.entry.id, found.values["pid"]) == ("KB-01", ("2811",))


# What may be the last line of a message whose frames were not pasted: offered, and said to be a part.
LACKING_FRAMES = {
    "ConnectionResetError: [Errno 104] Connection reset by peer": "KB-16",
    "OSError: [Errno 12] Cannot allocate memory": "KB-25",
}
SILENCE = [
    "my training hangs at the first batch with no output",
    "the process is stuck, no error, cpu idle",
    "DataLoader 创建成功，但第一个 batch 永远无法加载",
    "进程卡住，没有任何输出",
    "训练卡死了，没有报错",
]
UNKNOWN = [
    "",
    "   \n\n",
    "asdf qwer zxcv",
    "RuntimeError: ",
    "loss is nan after 3 epochs",
    "The quick brown fox jumps over the lazy dog",
    "segmentation model with workers and signals",
    "CUDA error: an illegal memory access was encountered",
    "为什么我的模型精度很低？",
    *HEALTHY,
    *(line for line in ALIKE if line not in LACKING_FRAMES),
]


def test_silence_is_looked_up_by_its_description() -> None:
    for text in SILENCE:
        assert ids(text) == ["KB-20"], text


def test_a_line_without_its_frames_is_offered_as_a_part() -> None:
    for text, id_ in LACKING_FRAMES.items():
        (found,) = look_up(text)
        assert (found.entry.id, found.is_partial) == (id_, True)


def test_what_is_not_known_is_not_made_up() -> None:
    for text in UNKNOWN:
        assert ids(text) == [], text


@given(st.text(max_size=300).filter(lambda text: text.strip() not in by_name()))  # constants of the code are drawn, too
def test_nonsense_matches_nothing(text: str) -> None:
    assert ids(text) == []


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_cut_example_never_leads_to_other_messages_alone(pair: tuple[MessageEntry, str], data: st.DataObject) -> None:
    """Cut anywhere: what comes back holds the true one, or is nothing."""
    entry, text = pair
    line = max(text.splitlines(), key=len)
    found = ids(line[: data.draw(st.integers(0, len(line)))])
    whole = ids(line)
    assert not found or entry.id in found or entry.id not in whole


def test_every_entry_can_be_looked_up() -> None:
    assert {ids(text)[0] for _, text in EXAMPLES} == {one.id for one in entries()}
