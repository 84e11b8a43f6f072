"""How a run ended, from its log: what is named as the end, what is not, in which words, and what comes next."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.causes import explain_logs
from headrace.model import Cause, Finding, Findings, Severity
from headrace.reports.contents import headline_of, next_step, title_of

STEPS = "".join(f"step {step} time 0.200s data_time 0.002s\n" for step in range(1, 40))
HEAD = "Traceback (most recent call last):\n"
OWN = '  File "me/train.py", line 12, in main\n    go(batch)\n'
LIBRARY = '  File "/opt/lib/python3.11/site-packages/torch/nn/module.py", line 9, in forward\n    return x\n'
LOADER = '  File "/opt/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 7, in _try_get_data\n'


@pytest.fixture
def explain(tmp_path: Path) -> Callable[..., Findings]:
    def run(*texts: str) -> Findings:
        paths = [tmp_path / f"{number}.log" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return explain_logs(list(map(str, paths)))

    return run


def first(findings: Findings) -> Finding:
    assert findings.findings[0].severity is Severity.FATAL
    return findings.findings[0]


def said(finding: Finding) -> str:
    return "\n".join(text.en for text in finding.evidence)


def test_an_exception_that_nobody_knows_is_named_with_the_user_s_line(explain: Callable[..., Findings]) -> None:
    found = explain(STEPS + HEAD + OWN + LIBRARY + "TypeError: save() got an unexpected keyword argument 'best'\n")
    assert title_of(first(found), "en").startswith(
        "TypeError: save() got an unexpected keyword argument 'best' · ended"
    )
    assert "raised in me/train.py, line 12, in main" in said(first(found))
    assert headline_of(found, "en").startswith("the run was ended: TypeError: save()")
    assert next_step(found, "en") == "Next: look at me/train.py, line 12, in main: there your code raised it"


@pytest.mark.parametrize("prefix", ["[rank1]: ", "2024-03-01 10:00:01,123 ERROR ", "(Trainer pid=7) "])
def test_prefixes_of_ranks_and_loggers_are_undone(prefix: str, explain: Callable[..., Findings]) -> None:
    lines = (HEAD + OWN + "KeyError: 'image'").splitlines()
    found = explain(STEPS + "".join(f"{prefix}{line}\n" for line in lines))
    assert title_of(first(found), "en").startswith("KeyError: 'image' · ")
    assert "me/train.py, line 12" in said(first(found))


def test_the_first_real_cause_counts_and_what_follows_is_its_consequence(explain: Callable[..., Findings]) -> None:
    launcher = (
        "W0301 10:00:25.3 6 torch/distributed/elastic/api.py:897] Sending process 5 closing signal SIGTERM\n"
        "E0301 10:00:26.3 6 torch/distributed/elastic/api.py:8] failed (exitcode: 1) local_rank: 0 (pid: 4)\n"
        + HEAD
        + LIBRARY
        + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    found = explain(STEPS + HEAD + OWN + "ValueError: no such class: 91\n" + launcher)
    assert title_of(first(found), "en").startswith("ValueError: no such class: 91")
    assert "closing signal SIGTERM" in said(first(found))
    assert len([one for one in found.findings if one.severity is Severity.FATAL]) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            HEAD
            + OWN
            + "RuntimeError: Caught KeyError in DataLoader worker process 0.\nOriginal "
            + HEAD
            + OWN
            + "KeyError: 7\n",
            "KeyError: 7",
        ),
        (
            HEAD + OWN + "queue.Empty\n\nThe above exception was the direct cause of the following exception:\n\n"
            + HEAD + OWN + "ValueError: worn out\n",
            "ValueError: worn out",
        ),
        (
            HEAD + OWN + "ValueError: worn out\n\nDuring handling of the above exception, another one occurred:\n\n"
            + HEAD + OWN + "RuntimeError: while closing\n",
            "ValueError: worn out",
        ),
        (HEAD + OWN + "RuntimeError: NCCL was aborted\n" + HEAD + OWN + "OverflowError: 9\n", "OverflowError: 9"),
    ],
)  # fmt: skip
def test_wrappers_and_echoes_are_not_the_cause(text: str, named: str, explain: Callable[..., Findings]) -> None:
    assert title_of(first(explain(STEPS + text)), "en").startswith(named)


def test_an_interrupt_in_the_loader_s_waiting_may_have_been_a_hang(explain: Callable[..., Findings]) -> None:
    waiting = explain(STEPS + "^C" + HEAD + OWN + LOADER + "KeyboardInterrupt\n")
    assert first(waiting).cause is not Cause.COMPUTE
    assert "waited for a batch" in title_of(first(waiting), "en")
    assert "py-spy dump" in next_step(waiting, "en")
    computing = explain(STEPS + HEAD + OWN + LIBRARY + "KeyboardInterrupt\n")
    assert "Interrupted by somebody (KeyboardInterrupt)" in title_of(first(computing), "en")
    assert "waited" not in title_of(first(computing), "en")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Killed\n", "killed"),
        ("run.sh: line 3:   81 Terminated              python train.py\n", "Terminated"),
        ("Hangup\n", "told to end"),
        ("W0301 10:00:25.388000 9 torch/distributed/elastic/agent/server/api.py:7] Received 15 death signal, "
         "shutting down workers\n", "death signal"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-01T10:00:25 DUE TO TIME LIMIT ***\n", "TIME LIMIT"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-01T10:00:25 DUE TO PREEMPTION ***\n", "PREEMPTION"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-01T10:00:25 ***\n", "CANCELLED"),
        ("=>> PBS: job killed: walltime 3605 exceeded limit 3600\n", "walltime"),
    ],
)  # fmt: skip
def test_an_end_from_outside_is_said(text: str, named: str, explain: Callable[..., Findings]) -> None:
    found = explain(STEPS + text)
    assert named in title_of(first(found), "en")
    assert not next_step(found, "en").startswith("Next: if ")


def test_a_reason_that_the_message_names_decides_its_cause(explain: Callable[..., Findings]) -> None:
    limit = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-01T10:00:25 DUE TO TIME LIMIT ***\n"
    found = explain(STEPS + limit + "[rank: 0] Received SIGTERM: 15\n" + "step 40 time 0.200s data_time 0.002s\n")
    assert len(first(found).fix) == 1
    assert "ask for more time" in first(found).fix[0].en
    assert "Received SIGTERM" in said(first(found))


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: skipping /data/7.jpg: OSError: image file is truncated (9 bytes not processed)\n",
        "Training finished.\nError in atexit._run_exitfuncs:\nOSError: [Errno 116] Stale file handle\n",
        "Training finished.\nException ignored in: <function Pool.__del__ at 0x7f>\n" + HEAD + OWN + "OSError: gone\n",
        "zipfile.BadZipFile: Bad CRC-32 for file 'x.npy'\nTraining finished, best epoch 3\n",
        HEAD + OWN + "requests.exceptions.HTTPError: 503\n" + STEPS,
        "classes: ['bus error', 'Killed by a car']\n",
    ],
)
def test_what_the_run_survived_did_not_end_it(text: str, explain: Callable[..., Findings]) -> None:
    assert not [one for one in explain(STEPS + text).findings if one.severity is Severity.FATAL]


def test_what_ended_an_earlier_run_of_the_same_log_is_said_to_be_earlier(explain: Callable[..., Findings]) -> None:
    found = explain(STEPS + "RuntimeError: DataLoader worker (pid 2811) is killed by signal: Killed. \n" + 3 * STEPS)
    assert "the log goes on after it" in title_of(found.findings[0], "en")


def test_a_traceback_that_many_lines_follow_did_not_end_it(explain: Callable[..., Findings]) -> None:
    logged = HEAD + OWN + "ConnectionAbortedError: later\n" + "".join(f"loaded part {n} of 60\n" for n in range(60))
    assert not explain(STEPS + logged).findings


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total of 15 GiB",
         "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("RuntimeError: stack expects each tensor to be equal size, but got [3, 4] at entry 0 and [3, 5] at entry 1",
         "stack expects each tensor to be equal size, but got [3, 4] at entry 0 and [3, 5] at entry 1"),
        ("OSError: Unable to open file (truncated file: eof = 96, stored_eof = 2048)",
         "Unable to open file (truncated file: eof = 96, stored_eof = 2048)"),
    ],
)  # fmt: skip
def test_titles_are_the_message_s_own_words(line: str, words: str, explain: Callable[..., Findings]) -> None:
    found = explain(STEPS + HEAD + OWN + line + "\n")
    assert f"{words} · ended the run" in title_of(first(found), "en")
    document = found.as_json()["findings"]
    assert isinstance(document, list)
    assert document[0]["title"] == words


def test_with_several_open_causes_the_next_step_is_a_check(explain: Callable[..., Findings]) -> None:
    found = explain(STEPS + "RuntimeError: DataLoader worker (pid 2811) is killed by signal: Killed. \n")
    assert next_step(found, "en").startswith("Next: find out whether it is this: ")
    assert "run `" in next_step(found, "en")
    assert next_step(found, "zh").startswith("下一步：确认是否如此：")


def test_a_run_that_was_slow_and_died_says_both(explain: Callable[..., Findings]) -> None:
    found = explain(STEPS + HEAD + OWN + "ValueError: 4\n")
    assert headline_of(found, "en").startswith("the run was ended: ValueError: 4; before that compute-bound")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('  File "train.py", line 232\n    optim="adamw"\n    ^\nSyntaxError: invalid syntax\n', "invalid syntax"),
        ("usage: train.py [-h]\ntrain.py: error: argument --fp16: Truthy value expected: got s\n", "--fp16"),
        ("Exited with exit code 1.\n\nResource usage summary:\n    CPU time : 13.55 sec.\n", "exit code 1"),
    ],
)
def test_an_end_without_a_traceback_is_an_end(explain: Callable[..., Findings], text: str, words: str) -> None:
    finding = first(explain(STEPS + text))
    assert finding.severity is Severity.FATAL
    assert words in title_of(finding, "en")


def test_of_several_starts_in_one_log_the_last_one_counts(explain: Callable[..., Findings]) -> None:
    starts = [f"Loaded module: cuda\n{HEAD}{OWN}ValueError: number {number}\n" for number in range(3)]
    assert "number 2" in title_of(first(explain("".join(starts))), "en")


def test_a_thread_that_finds_its_queue_closed_is_an_echo(explain: Callable[..., Findings]) -> None:
    thread = f"Exception in thread Thread-3:\n{HEAD}{LIBRARY}OSError: handle is closed\n"
    finding = first(explain(f"{STEPS}{thread}{HEAD}{OWN}RuntimeError: permute: 6 is not 5\n"))
    assert "permute" in title_of(finding, "en")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("./go.sh: line 7:  811 Segmentation fault      (core dumped) python train.py", "Segmentation fault"),
        ("srun: error: n7: task 0: Bus error", "Bus error"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "terminate called"),
        ("zsh: killed     python train.py", "The shell says that the training process was killed"),
        ("[ERROR] [launch.py:3:sigkill_handler] ['python'] exits with return code = -9", "exits with return code = -9"),
        ("call.py:5: UserWarning: Detected KeyboardInterrupt, attempting graceful shutdown...", "Interrupted"),
    ],
)
def test_an_end_is_named_without_its_traceback(line: str, named: str, explain: Callable[..., Findings]) -> None:
    assert named.lower() in title_of(first(explain(STEPS + line + "\n")), "en").lower()


def test_what_a_later_start_raised_counts_and_not_an_argument_that_an_earlier_one_refused(
    explain: Callable[..., Findings],
) -> None:
    usage = "usage: train.py [-h]\ntrain.py: error: argument --lr: expected one argument\n"
    assert title_of(first(explain(usage + HEAD + OWN + "KeyError: 'lr'\n")), "en").startswith("KeyError: 'lr'")


def test_an_exception_that_quotes_another_one_is_its_echo(explain: Callable[..., Findings]) -> None:
    found = explain(
        """Traceback (most recent call last):
  File "pool.py", line 6, in start
    raise RuntimeError(
RuntimeError: the actor could not be imported on the worker:

Traceback (most recent call last):
  File "model.py", line 5, in <module>
    import fast_kernels
ImportError: fast_kernels.so: undefined symbol: _Z4spam

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "main.py", line 3, in <module>
RuntimeError: failed to import model because of the following error:
fast_kernels.so: undefined symbol: _Z4spam
"""
    )
    assert "undefined symbol" in found.findings[0].title.en


def test_a_worker_that_dies_in_a_run_which_goes_on_ended_nothing(explain: Callable[..., Findings]) -> None:
    before, after = ("INFO:net:Train Epoch: 15 [70%]\n", "INFO:net:Train Epoch: 16 [5%]\n")
    text = before + "ERROR: Unexpected segmentation fault encountered in worker.\n"
    assert explain(text).findings[0].severity is Severity.FATAL
    assert explain(text + after).findings[0].severity is not Severity.FATAL


def test_a_bar_that_is_drawn_before_its_first_step_is_no_step(explain: Callable[..., Findings]) -> None:
    text = "ERROR: Unexpected segmentation fault encountered in worker.\nTrain: 0%|    | 0/51 [00:00<?, ?it/s]\n"
    assert explain(text).findings[0].severity is Severity.FATAL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('  File "me/make.py", line 7\n    x = (\n    ^\nSyntaxError: invalid syntax\n' + HEAD + OWN, "no module"),
        ("[0]<stderr>:Killed\n[1]<stderr>:Aborted (core dumped)\n", "killed"),
        ("Process finished with exit code -1073741795 (0xC000001D)\n", "0xc000001d"),
    ],
)
def test_a_start_that_never_ran_a_rank_s_signal_and_an_exit_code_are_ends(
    text: str, words: str, explain: Callable[..., Findings]
) -> None:
    text += "ModuleNotFoundError: No module named 'mine'\n" if words == "no module" else ""
    finding = first(explain(text))
    assert words in (title_of(finding, "en") + said(finding)).lower()
