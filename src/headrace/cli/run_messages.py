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
    ),
}
