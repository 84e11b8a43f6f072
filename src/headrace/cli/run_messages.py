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
    workers: str
    no_terminal: str
    now: str
    output: str
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
        live="{steps} steps, {rate}/s, waiting for data {share}, worst wait {worst}{workers}",
        live_none="no batch yet",
        workers=", workers busy {busy}",
        no_terminal="--tui needs a terminal on stderr; the script runs without the live screen",
        now="the last 10 s",
        output="the script's last lines",
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
        live="{steps} 步，{rate} 步/秒，等数据 {share}，最长等待 {worst}{workers}",
        live_none="还没有取到 batch",
        workers="，worker 忙碌 {busy}",
        no_terminal="--tui 需要 stderr 是终端；脚本照常运行，不显示实时界面",
        now="最近 10 秒",
        output="脚本最近的输出",
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
