"""What is written down of an exception that nobody caught tells what its whole traceback would."""

from __future__ import annotations

import pytest

from headrace.knowledge import MessageScanner
from headrace.launch.hooks import tracebacks
from headrace.launch.tape import tape

SITE = "/opt/lib/python3.11/site-packages"
TO_A_WORKER = [f"{SITE}/torch/utils/data/dataloader.py", f"{SITE}/torch/multiprocessing/reductions.py"]
TO_A_SERVER = [f"{SITE}/urllib3/connection.py", "/opt/lib/python3.11/http/client.py"]


@pytest.mark.parametrize(("files", "named"), [(TO_A_WORKER, ["connection_reset"]), (TO_A_SERVER, [])])
def test_a_connection_that_fails_is_the_end_of_a_worker_only_where_torch_asked_a_worker(
    monkeypatch: pytest.MonkeyPatch, files: list[str], named: list[str]
) -> None:
    def call(*way: str) -> None:
        """Fail below functions of these files, the outermost first."""
        if not way:
            raise ConnectionResetError(104, "Connection reset by peer")
        exec(compile("call(*way)", way[0], "exec"), {"call": call, "way": way[1:]})

    texts: list[str] = []
    monkeypatch.setattr(tape, "name", lambda text: len(texts.append(text) or texts))
    monkeypatch.setattr(tape, "write", lambda *_: None)
    monkeypatch.setattr(tracebacks, "_recorded", [])
    with pytest.raises(ConnectionResetError) as raised:
        call("/home/me/train.py", *files, "/opt/lib/python3.11/multiprocessing/connection.py")
    tracebacks.record_exception(raised.value)
    scanner = MessageScanner()
    scanner.scan_chunk(texts[0].encode())
    assert [one.entry.name for one in scanner.found()] == named
    assert f"{SITE}/torch/utils" not in texts[0]
