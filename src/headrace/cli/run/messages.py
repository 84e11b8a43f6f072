"""The sentences of `headrace run`, in English and in Chinese."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunMessages:
    """Everything the command says besides its findings; a language that lacks a sentence does not type-check."""

    title: str
    recorded: str
    no_report: str
    live: str
    live_none: str
    live_quiet: str
    workers: str
    no_terminal: str
    no_screen: str
    now: str
    output: str
    nothing_written: str
    written: str
    report_title: str
    replay_before: str
    replay_begins: str
    replay_ends: str
    replay_after: str


RUN_MESSAGES = {
    "en": RunMessages(
        title="headrace run: {duration}, exit code {code}",
        recorded="recorded in {directory}",
        no_report="the report failed: {error}; the recording is in {directory}",
        live="{elapsed}: {steps} steps, {rate}/s, waiting for data {share}, worst wait {worst}{workers}",
        live_none="{elapsed}: no batch yet",
        live_quiet="{elapsed}: {steps} steps, and nothing that is timed for {quiet}",
        workers=", workers busy {busy}",
        no_terminal="stderr is no terminal: --live writes a line every 5 s",
        no_screen="--tui needs a terminal on stderr: a line every 5 s instead, and the script's output is its own",
        now="the last 10 s",
        output="what the script wrote",
        nothing_written="nothing yet",
        written="the script's output is in {directory}: stdout.log, stderr.log",
        report_title="headrace run: the recording in {directory}: {duration}, {ended}",
        replay_before=(
            "--replay changes this training: after 16 steps it gets {steps} steps on batches that it has seen already. "
            "Use the run for its figures, not for its weights"
        ),
        replay_begins="process {pid} trains on cached batches from here on, for {steps} steps; its loader stands still",
        replay_ends="process {pid} gets its loader's own batches again, from where the loader stood",
        replay_after="this run trained on cached batches for some steps: throw its weights away",
    ),
    "zh": RunMessages(
        title="headrace run：{duration}，退出码 {code}",
        recorded="录制保存在 {directory}",
        no_report="报告生成失败：{error}；录制保存在 {directory}",
        live="{elapsed}：{steps} 步，{rate} 步/秒，等数据 {share}，最长等待 {worst}{workers}",
        live_none="{elapsed}：还没有取到 batch",
        live_quiet="{elapsed}：{steps} 步，已有 {quiet} 没有任何被计时的事发生",
        workers="，worker 忙碌 {busy}",
        no_terminal="stderr 不是终端：--live 改为每 5 秒输出一行",
        no_screen="--tui 需要 stderr 是终端：改为每 5 秒输出一行，脚本的输出不受影响",
        now="最近 10 秒",
        output="脚本的输出",
        nothing_written="暂无",
        written="脚本的输出保存在 {directory}：stdout.log、stderr.log",
        report_title="headrace run：{directory} 里的录制：{duration}，{ended}",
        replay_before=(
            "--replay 会改变这次训练：16 步之后，有 {steps} 步用的是已经见过的 batch。"
            "这次运行只用来看数字，不要保留它的权重"
        ),
        replay_begins="进程 {pid} 从现在起用缓存的 batch 训练 {steps} 步；加载器停在原处",
        replay_ends="进程 {pid} 又从加载器取真实的 batch，接着停下的地方继续",
        replay_after="这次运行有若干步用的是缓存 batch：它的权重请丢弃",
    ),
}
