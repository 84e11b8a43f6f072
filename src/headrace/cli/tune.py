"""`headrace tune`: which workers, backend, depth and batch size feed a training best, measured in seconds."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from headrace import __version__, tuning
from headrace.errors import UnusableInput
from headrace.model import Text, format_bytes, format_seconds, format_share, three_digits, with_error

from .arguments import Commands, add_command, add_language, check_output, seconds, size, whole
from .terminal import EXIT_INTERRUPTED, EXIT_OK, Terminal, line, say, table_of

if TYPE_CHECKING:
    from rich.text import Text as Line

    from .terminal import Cells, Part

_DESCRIPTION = """\
Find the number of workers, the backend, the depth of reading and, where several are given, the batch size that feed a
training best. A model of what one sample costs says where to look; short probes, in turn, decide, until the answer is
better than the noise. With --step-ms, the cheapest configuration that keeps up is wanted; without, the fastest.

TARGET is path/to/file.py:name or package.module:name (a loader, a data set, or a function that returns one), or a
pattern of tar shards. A loader's own settings are what is to be beaten. Or a run directory of `headrace run`: then the
answer is an estimate from that recording, and nothing is run.
"""
_EPILOG = """\
Each probe is a process of its own, bounded in time and memory: a data set that hangs or dies ends its probe alone.
exit codes: 0 an answer was found, 2 could not run (no such target, no batch), 130 interrupted (shows the best so far)
"""

_BAR_CELLS = 16

_PROGRESS = Text("tuning {target}, for {seconds} at most", "正在调优 {target}，至多 {seconds}")
_TITLE = Text("{target}: {dataset}, batches of {batch}", "{target}：{dataset}，batch 大小 {batch}")
_TOOK = Text("{count:probe(s)} in {seconds}", "{count} 次测量，用时 {seconds}")
_HEADS = Text(",model,samples/s,,first batch,cores,memory", ",模型,样本/秒,,首个 batch,核心,内存")
_BEST = Text("best", "最佳")
_NOW = Text("now", "现有")
_WHY = Text("Why:", "原因：")
_CODE = Text("In code:", "写成代码：")
_NOTHING = Text("Nothing was measured.", "没有测到任何结果。")
_STOPPED = Text("interrupted: the best so far", "已中断：以下是目前最好的结果")
_WRITTEN = Text(
    "written to {file}: DataLoader(dataset, profile={profile!r})",
    "已写入 {file}：DataLoader(dataset, profile={profile!r})",
)
_PROBED = Text("{candidate}: {rate} samples/s", "{candidate}：{rate} 样本/秒")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "which workers, backend and depth feed a training best: a model, then short probes"
    parser = add_command(commands, shared, "tune", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add("target", metavar="TARGET", help="file.py:name, package.module:name, a shard pattern, or a run directory")
    add("--seconds", type=seconds(3, 3600), default=30.0, metavar="S", help="time for all of it (default: 30)")
    add("--memory", type=size, metavar="SIZE", help="what the process and its workers may take, such as 8GiB")
    taken = "how long the training takes for a batch, without waiting"
    add("--step-ms", type=seconds(1e-6, usual="ms"), metavar="MS", help=taken)
    sizes = "samples a batch (default: the loader's, else 8); several, by comma, to choose from"
    add("--batch-size", type=_numbers(1, 1_000_000), default=(), metavar="N,…", help=sizes)
    add("--max-workers", type=whole(1, 512), metavar="N", help="default: 16, or twice the processors if that is more")
    add("--backend", choices=("process", "thread", "both"), default="both", help="default: both")
    add("--loader", choices=("headrace", "torch"), help="whose loader (default: headrace; of --sweep: torch)")
    swept = "measure these numbers of workers and no others, in turn: 0,4,8,16"
    add("--sweep", type=_numbers(0, 512), default=(), metavar="N,…", help=swept)
    kept = "save the answer as a profile of this file (headrace.toml), for DataLoader(profile=…)"
    add("--write", metavar="FILE", help=kept)
    add("--profile", default="tuned", metavar="NAME", help="of --write: the profile's name (default: tuned)")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/tune/1")


def _numbers(lowest: int, highest: int) -> Callable[[str], tuple[int, ...]]:
    return lambda text: tuple(dict.fromkeys(map(whole(lowest, highest), text.split(","))))


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.signals.recording import RUN_FILE

    if args.write is not None:
        check_output(args.write)
    if os.path.isfile(os.path.join(args.target, RUN_FILE)):
        return _from_recording(args, terminal)
    settings = tuning.TuneSettings(
        target=args.target,
        seconds=args.seconds - time.process_time(),  # which it took to come here
        memory_bytes=args.memory,
        step_s=args.step_ms,
        batch_sizes=args.batch_size,
        most_workers=args.max_workers,
        backends=("process", "thread") if args.backend == "both" else (args.backend,),
        loader=args.loader or ("torch" if args.sweep else "headrace"),
        sweep=args.sweep,
    )

    def tell(result: tuning.ProbeOutcome) -> None:
        if terminal.verbosity > 0:
            rate = three_digits(result.samples_per_s) if result.failure is None else result.failure.label
            terminal.warn(_PROBED.filled(candidate=_name(result.candidate), rate=rate))

    with terminal.progress(_PROGRESS.filled(target=args.target, seconds=format_seconds(args.seconds))):
        report = tuning.tune(settings, tell)
    if args.json:
        terminal.json(_document(report))
    else:
        terminal.parts(_parts(report))
    if report.chosen is not None:
        _save(args, terminal, report.profile_settings(), f"{three_digits(report.answer.samples_per_s)} samples/s")
    return EXIT_INTERRUPTED if report.is_interrupted else EXIT_OK


def _save(args: argparse.Namespace, terminal: Terminal, settings: dict[str, object], said: str) -> None:
    if args.write is not None:
        from headrace.loader import write_profile

        write_profile(args.write, args.profile, settings, comment=f"headrace tune {args.target}: {said}")
        terminal.warn(_WRITTEN.filled(file=args.write, profile=args.profile))


def _name(one: tuning.Candidate, *, several: bool = False) -> str:
    """Return a configuration in a few words: its batch size where there are several."""
    kind, size = "threads" if one.backend == "thread" else "workers", one.batch_size if several else None
    rest: dict[str, object] = {"batch": size, "ahead": one.batches_ahead, "depth": one.io_depth}
    rest |= {"malloc": "keep" if one.keeps_heap else None, "threads": one.threads, "cpus": one.cpus}
    said = [f"{one.loader} {one.num_workers} {kind}" if one.num_workers else f"{one.loader} in-process"]
    return ", ".join([*said, *(f"{name} {value}" for name, value in rest.items() if value)])


def _parts(report: tuning.TuneReport) -> Iterator[Part]:
    best = report.answer.candidate
    batch = (best or report.results[0].candidate).batch_size or "?"
    yield line(_TITLE.filled(target=report.settings.target, dataset=report.subject.dataset, batch=batch), "bold")
    yield f"  {say(_TOOK, count=len(report.results), seconds=format_seconds(report.elapsed_s))}\n"
    if report.is_interrupted:
        yield line(_STOPPED, "yellow")
    if best is None:
        yield line(_NOTHING, "bold")
        return
    yield table_of(_HEADS, _rows(report), left=(0, 3))
    for one in report.results:
        if one.failure is not None:
            said = (one.said.strip().splitlines() or [""])[0]
            yield line(f"{_name(one.candidate)}: {say(one.failure.label)}. {said}".strip(), "yellow")
    code = (f"{name.rpartition('.')[0]}.{call}" for name, call in report.arguments().items())
    yield from ("", *_close(report.reasons(), code))


def _close(why: Iterable[Text], code: Iterable[str]) -> Iterator[Part]:
    """Give why, and what to write."""
    yield line(_WHY, "bold")
    yield from (f"  - {say(each)}" for each in why)
    yield line(f"\n{say(_CODE)}", "bold")
    yield from (f"  {each}" for each in code)


def _rows(report: tuning.TuneReport) -> Iterator[Cells]:
    """Give all that was measured, fewest workers first, with bars that show the rates."""
    rates, best, now = report.answer.rates, report.answer.candidate, report.subject.baseline
    most, several = max(rate for rate, _ in rates.values()), len({one.batch_size for one in rates}) > 1
    for one in sorted(rates, key=lambda one: (one.loader, one.batch_size or 0, one.cost, _name(one))):
        good = [each for each in report.results if each.candidate == one and each.failure is None]
        yield (
            _name(one, several=several),
            three_digits(report.problem.service.per_s(one)),
            with_error(*rates[one]),
            _marked(rates[one][0] / most, is_best=one == best, is_now=one == now),
            format_seconds(good[-1].first_batch_s),
            three_digits(good[-1].cores),
            format_bytes(max(each.peak_bytes for each in good)),
        )


def _marked(share: float, *, is_best: bool, is_now: bool) -> Line:
    """Return a bar that fills a share of its cells, and what is to be said of it."""
    cells = round(8 * _BAR_CELLS * share)
    bar = "█" * (cells // 8) + " ▏▎▍▌▋▊▉"[cells % 8].strip()
    return line(" ".join([bar, *map(say, [_BEST] * is_best + [_NOW] * is_now)]), "green" if is_best else "cyan")


def _document(report: tuning.TuneReport) -> dict[str, Any]:
    rates, answer = report.answer.rates, asdict(replace(report.answer, rates={}))
    del answer["rates"]  # which are below, one after the other
    return {
        "schema": "headrace/tune/1",
        "headrace": __version__,
        "settings": asdict(report.settings),
        "subject": asdict(report.subject),
        "service": asdict(report.problem.service),
        "answer": answer | {"is_better": report.answer.is_better},
        "arguments": report.arguments(),
        "why": [say(each) for each in report.reasons()],
        "rates": [{**asdict(one), "samples_per_s": rate, "error": error} for one, (rate, error) in rates.items()],
        "probes": [asdict(one) for one in report.results],
        "elapsed_s": report.elapsed_s,
        "is_interrupted": report.is_interrupted,
    }


# ------------------------------------------------------------------------------------------ from a recording

_ESTIMATE = Text("{target}: an estimate from the recording; nothing was run", "{target}：根据录制的估计；没有实际运行")
_LOADER = Text(
    "the loader over {loader}: a step takes {step} without its wait, and {workers:worker(s) (makes|make)} a batch in "
    "{pool}",
    "{loader} 的加载器：不算等待一步 {step}，{workers} 个 worker 每 {pool} 产出一个 batch",
)
_FORECAST_HEADS = Text("workers,steps/s,,waits", "worker,步/秒,,等待占比")
_FEEDS = Text(
    "{workers:worker(s) (feeds|feed)} the loop: demand × time of a batch in one worker, and 5 % to spare (estimate)",
    "{workers} 个 worker 就能喂饱训练：需求 × 单个 worker 产出一个 batch 的时间，留 5 % 余量（估计）",
)
_TOO_FEW_CORES = Text(
    "{needed:worker(s)} would be needed, and the free processors carry {most}: less to compute for a batch is the rest",
    "需要 {needed} 个 worker，而空闲处理器只撑得起 {most} 个：其余只能靠减少每个 batch 的计算",
)
_NO_MORE = Text(
    "more workers are not said to help, for what they wait for would serve no more of them{bottleneck}: "
    "`headrace run` says what helps",
    "不能说增加 worker 会有用，因为它们等待的东西无法服务更多 worker{bottleneck}：`headrace run` 会说明什么有用",
)
_NO_MORE_ALLOWED = Text(
    "--max-workers allows {most} of the {needed:worker(s)} that would feed the loop (estimate)",
    "喂饱训练需要 {needed} 个 worker，而 --max-workers 只允许 {most} 个（估计）",
)
_MEASURE_IT = Text("Next: `headrace tune FILE.py:NAME` measures it.", "下一步：用 `headrace tune FILE.py:NAME` 实测。")


def _from_recording(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.causes.recorded import forecast_recording
    from headrace.signals.recording import read_run

    given = {name: getattr(args, name) for name in ("memory", "batch_size", "loader", "sweep")}
    given["backend"] = args.backend != "both"
    if refused := ", ".join(f"--{name.replace('_', '-')}" for name, value in given.items() if value):
        next_step = "leave it out, or name a TARGET: path/to/file.py:name"
        raise UnusableInput(f"{refused}: needs a TARGET, not a recording", next_step=next_step)
    forecast = forecast_recording(read_run(args.target), step_s=args.step_ms)
    if forecast is None:
        raise UnusableInput(
            f"too little was recorded in {args.target} of a loader and its workers to reckon with",
            next_step="a recording of some dozens of steps: headrace run -- python train.py",
        )
    now, settings, step_s = forecast.current, forecast.settings, forecast.supply.step.value
    most = min(forecast.most, args.max_workers or forecast.most)
    best = min(forecast.workers, most)
    counts = sorted({*tuning.worker_counts(max(min(most, 2 * best), now, 1)), now, best})
    rates = {count: forecast.steps_per_s(count) for count in counts}
    why = _FEEDS.filled(workers=best)
    if best < forecast.workers:
        why = _NO_MORE_ALLOWED.filled(most=most, needed=forecast.needed)
    elif forecast.most <= now < forecast.needed:
        why = _NO_MORE.filled(bottleneck=f" ({forecast.bottleneck.value})" if forecast.bottleneck is not None else "")
    elif forecast.needed > forecast.most:
        why = _TOO_FEW_CORES.filled(needed=forecast.needed, most=forecast.most)
    call = f"DataLoader(dataset, batch_size={settings.batch_size}, num_workers={best})"
    _save(args, terminal, {"num_workers": best}, "an estimate from what was recorded")
    if args.json:
        document = {
            "schema": "headrace/tune/1",
            "headrace": __version__,
            "is_estimate": True,
            "loader": {"dataset": forecast.loader, **asdict(settings)},
            "step_s": step_s,
            "answer": {"num_workers": best, "needed": forecast.needed, "most": forecast.most},
            "rates": [{"num_workers": k, "steps_per_s": one.value, "error": one.error} for k, one in rates.items()],
            "arguments": dict.fromkeys(("headrace.DataLoader", "torch.utils.data.DataLoader"), call),
            "why": [say(why)],
        }
        terminal.json(document)
        return EXIT_OK
    pool, rows = format_seconds(forecast.supply.batch.value * forecast.supply.tasks), []
    for count, rate in rates.items():
        busy = rate.value * step_s
        bar = _marked(busy, is_best=count == best, is_now=count == now)
        rows.append((str(count), with_error(rate.value, rate.error), bar, format_share(max(0.0, 1 - busy))))
    facts = say(_LOADER, loader=forecast.loader, step=format_seconds(step_s), workers=max(1, now), pool=pool)
    title, table = line(_ESTIMATE.filled(target=args.target), "bold"), table_of(_FORECAST_HEADS, rows, left=(2,))
    terminal.parts([title, f"  {facts}\n", table, "", *_close([why], [call]), "", _MEASURE_IT])
    return EXIT_OK
