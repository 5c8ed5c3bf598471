"""A flow of jobs from numbered classes to numbered pools, grown one augmenting path after another.

The pools of a class come in the order of use, those of runners first. Sets of classes are bits of an
integer, so that a step over hundreds of classes costs as much as one over a few. It never knows what a
class or a pool is.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

_NO_BOUND = 1 << 60


class Flow:
    """How many jobs of each class each pool serves: `users` by pool, `matched` by class.

    `pools` are those of each class. The first `runners` pools need no registration of their accounts;
    of the others `machines` counts by account how many serve it.
    """

    def __init__(
        self, pools: list[list[int]], free: list[int], runners: int, accounts: list[int]
    ) -> None:
        self.pools = pools
        self.matched = [0] * len(pools)
        self.moved = False
        self.users: list[dict[int, int]] = [{} for _ in free]
        self.machines = [0] * (max(accounts, default=-1) + 1)
        self._free = free
        self._runners = runners
        self._accounts = accounts
        self._bits = [0] * len(free)
        self._left: list[int] | None = None
        self._closed = 0
        # Classes that have no way out as long as their account is out of turns.
        self._shut = 0
        # Classes with something free in any of their pools, and perhaps some that had it before.
        self._open = (1 << len(pools)) - 1
        self._kept: set[int] = set()
        self._next = [0] * len(pools)
        # Where each class has taken last: as long as that pool has something free, it takes there.
        self._where = [len(free)] * len(pools)
        self._mine: list[dict[int, int]] = [{} for _ in pools]
        self._skip = [0] * len(pools)
        self._first_spare = len(pools)

    def bound(self, reach: list[int] | None) -> None:
        """Let each account take no more machines than this, or as many as there are."""
        self._left = None
        if reach is not None:
            self._left = [most - taken for most, taken in zip(reach, self.machines, strict=True)]
        self._closed = self._shut = 0

    def add_spare(self, pools: list[int], kept: set[int]) -> int:
        """Add a class that counts against no account; from `kept` pools it drives no job away."""
        self.pools.append(pools)
        self.matched.append(0)
        self._next.append(0)
        self._open |= 1 << len(self.pools) - 1
        self._kept = kept
        return len(self.pools) - 1

    def take_all(self, number: int, wanted: int) -> None:
        """Serve a class from what is free, whatever its account's bound is."""
        wanted -= self.matched[number]
        for pool in self.pools[number]:
            count = min(wanted, self._free[pool])
            if count > 0:
                self._take(number, pool, count)
                self.matched[number] += count
                wanted -= count

    def serve(self, ages: Iterable[Sequence[int]], shared: Sequence[int]) -> None:
        """Serve the jobs of the `shared` classes in the order of `ages`, as far as that goes.

        What is matched already are the oldest of each class. A class whose next job cannot be served
        is served no more.
        """
        open_ = [False] * len(self.pools)
        for number in shared:
            open_[number] = True
        self._skip = [n if wanted else 0 for n, wanted in zip(self.matched, open_, strict=True)]
        left = len(shared)
        for piece in ages:
            if not left:
                break
            left -= self._serve_some(piece, open_, left)
        self._where = [len(self._free)] * len(self.pools)
        self._count()

    def _serve_some(self, ages: Sequence[int], open_: list[bool], left: int) -> int:
        """Serve some jobs in their order; how many classes turned out to be stuck."""
        free, at, mine, skip = [*self._free, 0], self._where, self._mine, self._skip
        self._free, stuck, quick = free, 0, self._left is None
        skipping = any(skip)
        for number in ages:
            pool = at[number]
            if free[pool]:
                free[pool] -= 1
                mine[number][number] += 1
            elif skipping and skip[number]:
                skip[number] -= 1
            elif open_[number]:
                path = self._path(number)
                if path is None:
                    open_[number] = False
                    stuck += 1
                    if stuck == left:
                        break
                    continue
                self._push(path, 1)
                if quick and len(path) == 1:
                    at[number] = pool = path[0][1]
                    mine[number] = self.users[pool]
        free.pop()
        return stuck

    def _count(self) -> None:
        """Count from the flow what was served without being counted."""
        self.matched = [0] * len(self.pools)
        self.machines = [0] * len(self.machines)
        for pool, users in enumerate(self.users):
            for number, count in users.items():
                self.matched[number] += count
                if pool >= self._runners and number < self._first_spare:
                    self.machines[self._accounts[number]] += count

    def augment(self, number: int, wanted: int = 1) -> int:
        """Serve up to `wanted` more jobs of a class by one path; how many.

        Moves jobs of other classes to other pools where need be. 0: none can be served.
        """
        path = self._path(number)
        if path is None:
            return 0
        count = min(wanted, self._free[path[-1][1]]) if self._left is None else 1
        for (_, pool), (other, _) in pairwise(path):
            count = min(count, self.users[pool][other])
        self._push(path, count)
        self.matched[number] += count
        return count

    def _push(self, path: list[tuple[int, int]], count: int) -> None:
        if len(path) > 1:
            self.moved = True
            for (_, pool), (other, _) in pairwise(path):
                self._move(other, pool, -count)
            for one, pool in path[:-1]:
                self._move(one, pool, count)
        self._take(*path[-1], count)

    def _path(self, root: int) -> list[tuple[int, int]] | None:
        """Which class takes which pool, each from the one that follows, the last from what is free."""
        stuck = self._closed | self._shut if self._out_of_turns(root) else self._closed
        if stuck >> root & 1:
            return None
        if (pool := self._direct(root)) is not None:
            return [(root, pool)]
        visited, stack, other = stuck | 1 << root, [_Step(root)], root
        if not self._open & ~visited:
            return None
        while stack:
            step = stack[-1]
            if not step.at and (near := self._near(step, visited)) is not None:
                other, pool = near
                break
            step.waiting &= ~visited
            if not step.waiting and not self._next_pool(step, visited):
                self._leave(stack)
                continue
            lowest = step.waiting & -step.waiting
            visited |= lowest
            other = lowest.bit_length() - 1
            self._lend(other, step.pool, 1)
            pool = self._direct(other)
            if pool is not None:
                break
            stack.append(_Step(other))
        else:
            return None
        path = [(one.number, one.pool) for one in stack] + [(other, pool)]
        for (_, taken), (one, _) in pairwise(path):
            self._lend(one, taken, -1)
        return path

    def _direct(self, number: int) -> int | None:
        """The first pool of a class with something free that its account may take."""
        pools, free = self.pools[number], self._free
        for at in range(self._next[number], len(pools)):
            pool = pools[at]
            if free[pool] > 0:
                self._next[number] = at  # what is used up stays so
                # Runners come first: without a turn for this pool, there is none for those behind it.
                return pool if self._left is None or self._within(number, pool) else None
        self._next[number] = len(pools)
        self._open &= ~(1 << number)
        return None

    def _near(self, step: "_Step", visited: int) -> tuple[int, int] | None:
        """A user of the class's pools that finds something free elsewhere, and what it finds."""
        if self._left is not None:
            return None  # what a user may take depends on the way to it
        wanted = self._open & ~visited
        for pool in self.pools[step.number]:
            if step.number >= self._first_spare and pool in self._kept:
                continue
            while users := self._bits[pool] & wanted:
                other = (users & -users).bit_length() - 1
                if (found := self._direct(other)) is not None:
                    step.pool = pool
                    return other, found
                wanted &= self._open
        return None

    def _next_pool(self, step: "_Step", visited: int) -> bool:
        """Go on to the next pool whose users could move; False where there is none."""
        pools, number, bits, left = self.pools[step.number], step.number, self._bits, self._left
        spare, new = number >= self._first_spare, ~visited
        for at in range(step.at, len(pools)):
            pool = pools[at]
            if spare and pool in self._kept:
                continue  # no job gives its ready machine up for the sake of a minimum
            if left is not None and not self._within(number, pool):
                step.at, step.bounded = at + 1, True
                return False  # nor any pool that follows: runners come first, machines are alike
            step.seen |= bits[pool]
            if bits[pool] & new:
                step.at, step.pool, step.waiting = at + 1, pool, bits[pool] & new
                return True
        step.at = len(pools)
        return False

    def _leave(self, stack: list["_Step"]) -> None:
        """Nothing is to be had by way of this class. Where all it led to is closed, it stays so."""
        step = stack.pop()
        if not step.bounded and not step.seen & ~step.tried & ~self._closed:
            self._closed |= step.tried
        if stack:
            before = stack[-1]
            self._lend(step.number, before.pool, -1)
            before.tried |= step.tried
            before.seen |= step.seen
            before.bounded = before.bounded or step.bounded
        elif self._out_of_turns(step.number):
            self._shut |= step.tried

    def _out_of_turns(self, number: int) -> bool:
        """Whether the class's account may use runners alone, which only its own classes share."""
        return self._left is not None and self._left[self._accounts[number]] <= 0

    def _within(self, number: int, pool: int) -> bool:
        """Whether the class's account could register another of the pool's machines in time."""
        if self._left is None or pool < self._runners:
            return True
        return self._left[self._accounts[number]] > 0

    def _lend(self, number: int, pool: int, count: int) -> None:
        """A class that gives up a machine has its turn to register left over."""
        if self._left is not None and pool >= self._runners:
            self._left[self._accounts[number]] += count

    def _take(self, number: int, pool: int, count: int) -> None:
        self._free[pool] -= count
        self._move(number, pool, count)

    def _move(self, number: int, pool: int, count: int) -> None:
        users = self.users[pool]
        now = users.get(number, 0) + count
        if now:
            users[number] = now
            self._bits[pool] |= 1 << number
        else:
            del users[number]
            self._bits[pool] &= ~(1 << number)
        if pool >= self._runners and number < self._first_spare:
            self.machines[self._accounts[number]] += count
            if self._left is not None:
                self._left[self._accounts[number]] -= count
                if count < 0:
                    self._shut = 0


class _Step:
    """A class on the way of a search: the pool whose users are tried, and which of them are left.

    `tried` are the classes that were tried by way of it, `seen` the users of their pools; `bounded`
    says that an account's bound kept it from going on.
    """

    __slots__ = ("at", "bounded", "number", "pool", "seen", "tried", "waiting")

    def __init__(self, number: int) -> None:
        self.number, self.at, self.pool = number, 0, -1
        self.waiting, self.seen, self.tried = 0, 0, 1 << number
        self.bounded = False
