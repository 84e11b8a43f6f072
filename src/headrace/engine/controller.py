"""How many workers, and how many batches ahead, from what a loader did: windows in, adjustments out. Pure.

While the loop waits, the number of workers with the most samples a second is searched for: each number is a *trial*,
judged by the windows after it against those before it. What it brought is remembered until the samples a second at the
same number are others than they were. When nothing is left to try it rests, ever longer. Decision 18 says why.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.model import Adjustment, AdjustmentReason, Lever

# shares of the loop's time. Below 3 % there is no more to gain than what noise hides; between both it is left alone
_WAITS_FROM, _QUIET_UP_TO = 0.03, 0.01
_BETTER, _AS_GOOD, _MUCH_WORSE = 1.03, 0.98, 0.7
_IN_PROPORTION = 0.9  # of what as many times the workers would give at best
_ERRORS = 2.5  # times the error of a difference, to believe in it
_LEAST_NOISE, _NOISE_PART = 0.01, 0.1
_CHANGED, _CHANGED_ERRORS = 0.1, 4.0
_LEAST_WINDOWS, _MOST_WINDOWS = 3, 8
# of the time of busy workers: ready to run, and no core was free
_CONTENDED_FROM = 0.25
_BY_TURNS = 0.6  # so many more workers than cores can carry keep them busy, where samples hardly compute
_STARVED_BUSY = 0.6
_BYTES_FROM = 0.5
# neighbours that are no further apart than this are not looked between
_FINE_UP, _FINE_DOWN = 1.2, 1.5
_FEW = 4  # of so few, one fewer costs much already
_SPARE_S, _HEADROOM = 4.0, 1.25
_FIRST_REST_S, _MOST_REST_S = 30.0, 900.0
_MOST_TOLD = 256
_MEMORY_REST_S, _MEMORY_EVERY_S = 300.0, 2.0


@dataclass(frozen=True, kw_only=True)
class TuningWindow:
    """What was seen of a loader over a stretch of time, and what the machine has room for."""

    elapsed_s: float
    passed_s: float = 0.0  # between the last one and this
    samples: float  # that workers finished
    wait_s: float  # of the loop
    busy_s: float  # of all workers together
    num_workers: int
    most_workers: int  # that memory and the loader have room for
    ahead: int
    most_ahead: int  # that the budget has room for
    processors: int
    cpu_share: float = 0.0  # of the busy time: on a core; 0 where it is not known
    no_core_share: float = 0.0  # of the busy time: ready to run, without a core
    bytes_share: float = 0.0  # of the busy time: waiting for what is read ahead
    is_short: bool = False  # of memory
    is_steady: bool = True  # no worker was starting, and the loop did not pause

    @property
    def rate(self) -> float:
        return self.samples / self.elapsed_s


@dataclass(frozen=True)
class _Rate:
    """Samples a second over some windows, and the error of their mean."""

    mean: float
    error: float

    @classmethod
    def of(cls, windows: Sequence[TuningWindow], noise: float) -> "_Rate":
        """`noise`: how much windows differ usually, for a few of them may agree by chance."""
        rates = [window.rate for window in windows]
        mean, count = max(1e-9, sum(rates) / len(rates)), len(rates)
        spread = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / max(1, count - 1))
        return cls(mean, max(spread, noise * mean) / math.sqrt(count))

    def over(self, other: "_Rate") -> tuple[float, float]:
        """How many times the other it is, and the error of that."""
        return self.mean / other.mean, math.hypot(self.error, other.error) / other.mean


@dataclass
class _Rest:
    """A pause that doubles each time."""

    length_s: float = _FIRST_REST_S
    until_s: float = 0.0

    def begin(self, now_s: float) -> None:
        self.until_s = now_s + self.length_s
        self.length_s = min(_MOST_REST_S, 2 * self.length_s)


@dataclass
class Controller:
    """Decides. One for all epochs of a loader."""

    now_s: float = 0.0  # since it began
    _windows: deque[TuningWindow] = field(default_factory=lambda: deque(maxlen=_MOST_WINDOWS))  # of the present numbers
    _known: dict[int, _Rate] = field(default_factory=dict)  # by workers, while the loop waited
    _noise: float = 0.02  # between windows
    _trial: Adjustment | None = None
    _rate_before: _Rate = _Rate(1.0, 0.0)  # that trial
    _is_settling: bool = True  # the next window is passed over
    _workers: int = 0  # as they should be
    _start: int = 0
    _rest: _Rest = field(default_factory=_Rest)
    _spare_rest: _Rest = field(default_factory=_Rest)
    _ahead_rest: _Rest = field(default_factory=_Rest)
    _spared_at_s: float = -math.inf
    _memory: tuple[int, float, float] = (0, 0.0, 0.0)  # no more workers than these, until when; when to yield again
    _has_settled: bool = False  # nothing is left to try
    told: deque[Adjustment] = field(default_factory=lambda: deque(maxlen=_MOST_TOLD))

    def observe(self, seen: TuningWindow) -> Adjustment | None:
        """Take in a window, and say what to change now, or why to stay; most often nothing."""
        self.now_s += seen.passed_s + seen.elapsed_s
        self._start = self._start or seen.num_workers
        if self._workers and seen.num_workers != self._workers:  # somebody else changed it: the guard, or `resize`
            self._begin_windows()
        self._workers = seen.num_workers
        if seen.is_short:
            return self._yield_memory(seen)
        if not seen.is_steady:
            return None
        if self._is_settling:
            self._is_settling = False
            return None
        if self._windows:  # of two in a row, the difference is 1.13 times the spread on average
            before = self._windows[-1].rate
            spread = abs(seen.rate - before) / max(1e-9, seen.rate + before) * 2 / 1.13
            self._noise += _NOISE_PART * (max(_LEAST_NOISE, spread) - self._noise)
        self._windows.append(seen)
        if self._trial is not None:
            self._forget_another_time()
            return self._judge(self._trial)
        return self._consider(seen) if len(self._windows) >= _LEAST_WINDOWS else None

    def pause(self) -> None:
        """An epoch begins: what lies between two of them is no window, and workers may be new."""
        self._is_settling = True

    # ------------------------------------------------------------------------------------ judging

    def _judge(self, trial: Adjustment) -> Adjustment | None:
        is_last, is_grown = len(self._windows) >= _MOST_WINDOWS, trial.after > trial.before
        if trial.reason is AdjustmentReason.SPARE:
            if self._share("wait_s") >= _WAITS_FROM:
                self._spare_rest.begin(self.now_s)
                return self._undo(trial, AdjustmentReason.MISSED)
            if is_last:
                self._spared_at_s = self.now_s
                return self._keep(trial, AdjustmentReason.ENOUGH)
            return None
        rate = self._rate()
        gain, error = rate.over(self._rate_before)
        wanted = _BETTER if is_grown else _AS_GOOD
        if trial.reason is AdjustmentReason.CONTENDED:  # on full cores everything is noisy, and fewer is what is due
            wanted = min(wanted, 1 - error)
        is_open = len(self._windows) < _LEAST_WINDOWS or (abs(gain - wanted) < _ERRORS * error and not is_last)
        if is_open and gain >= _MUCH_WORSE:
            return None
        if trial.lever is Lever.WORKERS:
            if is_grown and gain >= _IN_PROPORTION * trial.after / trial.before:
                # no limit is near: what more workers gave less with is of another time
                self._known = {n: known for n, known in self._known.items() if n < trial.after}
            self._known[trial.after] = rate
        if gain < wanted or (is_grown and gain - 1 < _ERRORS * error):
            if trial.lever is Lever.AHEAD:
                self._ahead_rest.begin(self.now_s)
            return self._undo(trial, AdjustmentReason.NO_GAIN, gain)
        if gain < _BETTER:
            return self._keep(trial, AdjustmentReason.AS_GOOD, gain)
        self._rest, self._has_settled = _Rest(), False
        return self._keep(trial, AdjustmentReason.HELPED, gain)

    # ------------------------------------------------------------------------------------ what to try

    def _consider(self, seen: TuningWindow) -> Adjustment | None:
        wait, rate = self._share("wait_s"), self._rate()
        if wait <= _QUIET_UP_TO:
            return self._spare(seen)
        if wait < _WAITS_FROM:
            return None
        if (before := self._known.get(seen.num_workers)) is not None:
            times, error = rate.over(before)
            if abs(times - 1) > max(_CHANGED, _CHANGED_ERRORS * error):
                self._known, self._rest, self._ahead_rest, self._has_settled = {}, _Rest(), _Rest(), False
                told = self._tell(AdjustmentReason.CHANGED, seen.num_workers, seen.num_workers, gain=times)
                self._begin_windows()  # some of these lie before the change
                return told
        else:
            self._known[seen.num_workers] = rate
        is_contended = self._mean("no_core_share") >= _CONTENDED_FROM
        if self._share("busy_s") < _STARVED_BUSY * seen.num_workers:  # idle: more batches may be in flight
            ahead = min(2 * seen.ahead, seen.most_ahead)
            if ahead > seen.ahead and self.now_s >= self._ahead_rest.until_s:
                return self._try(AdjustmentReason.STARVED, seen.ahead, ahead, rate, Lever.AHEAD)
            if not is_contended:
                return None
        if self._mean("bytes_share") >= _BYTES_FROM:
            return None  # the reader's depth is its own to find
        return self._climb(seen, rate, is_contended=is_contended)

    def _climb(self, seen: TuningWindow, rate: _Rate, *, is_contended: bool) -> Adjustment | None:
        """The loop waits: look for the number of workers with the most samples a second."""
        if self.now_s < self._rest.until_s:
            return None
        up, down = self._above(seen), self._below(seen.num_workers)
        if self._has_settled:  # and rested: what was no better may be by now, but what was worse is not tried again
            self._rest.begin(self.now_s)
            more = min(2 * seen.num_workers, self._most(seen))
            up, down = more if more > seen.num_workers else None, None
        elif down is not None and max(self._known) > seen.num_workers == min(self._known):
            up = None  # twice as many bring nothing: half as many, before what lies between
        if is_contended and up is not None:  # no more than a worker a core: what others leave of them
            up = min(up, seen.processors) if seen.num_workers < seen.processors else None
        if up is not None:
            if self.now_s - self._spared_at_s < _FIRST_REST_S:  # it was too few
                self._spare_rest.begin(self.now_s)
            return self._try(AdjustmentReason.WAITS, seen.num_workers, up, rate)
        if down is not None:
            why = AdjustmentReason.CONTENDED if is_contended else AdjustmentReason.PAST_KNEE
            # against the most that any number gave: steps down that each lose a little would lose much together
            most = max(self._known.values(), key=lambda known: known.mean)
            return self._try(why, seen.num_workers, down, most)
        if self._has_settled:
            return None
        self._rest.begin(self.now_s)
        self._has_settled = True
        rest_at = seen.num_workers if is_contended else self._above_the_knee(seen)
        return self._tell(AdjustmentReason.SETTLED, seen.num_workers, rest_at)

    def _above_the_knee(self, seen: TuningWindow) -> int:
        """Where to rest: at the knee itself, a machine that gets faster is not seen; a step above it, it is."""
        now = seen.num_workers
        above = min((n for n in self._known if n > now), default=now)
        is_next = above <= min(max(now + 1, _FINE_UP * now), self._most(seen))
        return above if is_next and self._known[above].mean >= _AS_GOOD * self._known[now].mean else now

    def _above(self, seen: TuningWindow) -> int | None:
        """The next number of workers to try above this one."""
        now, most = seen.num_workers, self._most(seen)
        above = min((n for n in self._known if n > now), default=None)
        if above is None:
            needed = math.ceil(now * _HEADROOM / max(0.1, 1 - self._share("wait_s")))
            wanted = min(2 * now, max(now + 1, needed))
        else:
            wanted = round(math.sqrt(above * now)) if above > _FINE_UP * now else now
        return min(wanted, most) if min(wanted, most) > now else None

    def _below(self, now: int) -> int | None:
        """The next number of workers to try below this one."""
        below = max((n for n in self._known if n < now), default=None)
        if below is None:
            return (now // 2 if now > _FEW else now - 1) or None
        # each worker does no more among many than among few: that bounds what lies between
        most = max(known.mean for known in self._known.values())
        enough = math.ceil(below * _AS_GOOD * most / self._known[below].mean)
        middle = max(round(math.sqrt(below * now)), enough)
        return middle if below < middle < now / _FINE_DOWN**0.5 else None

    def _most(self, seen: TuningWindow) -> int:
        """The most workers that cores and memory have room for."""
        bound, until_s, _ = self._memory
        most = min(seen.most_workers, bound) if self.now_s < until_s else seen.most_workers
        on_core, off_core = self._mean("cpu_share"), self._mean("no_core_share")
        if on_core > 0 and off_core < 1:
            # one more than the cores can carry; and where samples wait for something else, they come to a core by turns
            by_turns = 1 + _BY_TURNS * max(0.0, 1 - on_core - off_core)
            most = min(most, math.floor(by_turns * seen.processors * (1 - off_core) / on_core) + 1)
        return most

    def _spare(self, seen: TuningWindow) -> Adjustment | None:
        """Nothing waits: as many workers as are busy, and some."""
        windows, now = self._windows, seen.num_workers
        is_long = len(windows) == _MOST_WINDOWS and sum(one.elapsed_s for one in windows) >= _SPARE_S
        fewer = max(math.ceil(self._share("busy_s") * _HEADROOM), math.ceil(now / 2))
        if not is_long or now - fewer < max(1.0, 0.15 * now) or self.now_s < self._spare_rest.until_s:
            return None
        return self._try(AdjustmentReason.SPARE, now, fewer, self._rate())

    def _yield_memory(self, seen: TuningWindow) -> Adjustment | None:
        """Memory is short: give back what was grown; that the guard sends workers home is its own affair."""
        trial, now = self._trial, seen.num_workers
        if trial is not None and trial.lever is Lever.AHEAD:
            return self._undo(trial, AdjustmentReason.MEMORY)
        fewer = max(self._start, min(now - 1, 3 * now // 4)) if trial is None else min(trial.before, trial.after)
        if fewer >= now or self.now_s < self._memory[2]:
            return None
        self._memory = fewer, self.now_s + _MEMORY_REST_S, self.now_s + _MEMORY_EVERY_S
        return self._tell(AdjustmentReason.MEMORY, now, fewer)

    # ------------------------------------------------------------------------------------ moves, and what is said

    def _try(
        self, reason: AdjustmentReason, before: int, after: int, rate: _Rate, lever: Lever = Lever.WORKERS
    ) -> Adjustment:
        self._trial, self._rate_before = self._tell(reason, before, after, lever), rate
        return self._trial

    def _keep(self, trial: Adjustment, reason: AdjustmentReason, gain: float = 1.0) -> Adjustment:
        self._trial = None
        return self._tell(reason, trial.after, trial.after, trial.lever, gain)

    def _undo(self, trial: Adjustment, reason: AdjustmentReason, gain: float = 1.0) -> Adjustment:
        return self._tell(reason, trial.after, trial.before, trial.lever, gain)

    def _tell(
        self, reason: AdjustmentReason, before: int, after: int, lever: Lever = Lever.WORKERS, gain: float = 1.0
    ) -> Adjustment:
        """Decide, and say so; a number that changes begins windows of its own."""
        seen = {"wait_share": self._share("wait_s"), "gain": gain, "at_s": self.now_s}
        self.told.append(Adjustment(lever=lever, before=before, after=after, reason=reason, **seen))
        if before != after:
            self._workers = after if lever is Lever.WORKERS else self._workers
            self._begin_windows()
        return self.told[-1]

    def _forget_another_time(self) -> None:
        """What was before the machine changed, in the midst of a trial, says nothing of the trial."""
        *before, last = self._windows
        if len(before) > 1:
            times, error = _Rate.of([last], self._noise).over(_Rate.of(before, self._noise))
            if abs(times - 1) > max(_CHANGED, _CHANGED_ERRORS * error):
                self._windows.clear()
                self._windows.append(last)

    def _begin_windows(self) -> None:
        self._windows.clear()
        self._trial, self._is_settling = None, True

    def _rate(self) -> _Rate:
        return _Rate.of(self._windows, self._noise)

    def _share(self, name: str) -> float:
        """What part of the windows' time something took."""
        total = sum(one.elapsed_s for one in self._windows)
        return float(sum(getattr(one, name) for one in self._windows)) / total if total else 0.0

    def _mean(self, name: str) -> float:
        return float(sum(getattr(one, name) for one in self._windows)) / len(self._windows)
