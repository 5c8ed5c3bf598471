"""A maximum flow of jobs from numbered classes to numbered pools, by augmenting paths.

The pools of a class are in order of use, pools of runners first. A set of classes is an integer with a bit
for each class, so that operations on hundreds of classes are as fast as on a few.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

Path = list[tuple[int, int]]
"""Pairs of class and pool. Each class takes a place in its pool from the next class, the last a free place."""


class Flow:
    """How many jobs of each class each pool serves.

    `pools` has the pools of each class. `users` counts jobs by pool and class, `matched` by class. The first
    `runners` pools are registered runners. The other pools are machines that have yet to register.
    `moved`: jobs moved from pool to pool.
    """

    def __init__(
        self, pools: list[list[int]], free: list[int], runners: int, accounts: list[int]
    ) -> None:
        self.pools = pools
        self.matched = [0] * len(pools)
        self.moved = False
        self.users: list[dict[int, int]] = [{} for _ in free]
        self._free = free
        self._runners = runners
        self._accounts = accounts
        self._bits = [0] * len(free)
        self._left: list[int] | None = None
        # Classes without any path.
        self._stuck = 0
        # Classes without any path as long as their account can register no more machines.
        self._stuck_by_account = 0
        # Superset of the classes with free supply in one of their pools.
        self._maybe_free = (1 << len(pools)) - 1
        # The pools of each class from which it may move jobs of other classes.
        self._movable = list(pools)
        self._next = [0] * len(pools)
        # The pool and the detour that each class used last. While they are open, no search is needed.
        self._last_pool = [len(free)] * len(pools)
        self._detours: dict[int, Path] = {}
        self._skip = [0] * len(pools)
        # The classes that `serve` may still find a path for.
        self._open = 0
        self._first_minimum = len(pools)

    @property
    def machines(self) -> list[int]:
        """Return by account how many jobs are served by machines that have yet to register."""
        counts = [0] * (max(self._accounts, default=-1) + 1)
        for users in self.users[self._runners :]:
            for number, count in users.items():
                if number < self._first_minimum:
                    counts[self._accounts[number]] += count
        return counts

    def limit(self, registrable: list[int] | None) -> None:
        """Limit the machines that each account may use in total. None removes the limit."""
        self._left = None
        if registrable is not None:
            self._left = [n - taken for n, taken in zip(registrable, self.machines, strict=True)]
        self._stuck = self._stuck_by_account = 0

    def add_supply(self, counts: Mapping[int, int]) -> None:
        """Add free supply to pools. Jobs that could not be served before may have a path now."""
        for pool, count in counts.items():
            self._free[pool] += count
        self._next = [0] * len(self.pools)
        self._maybe_free = (1 << len(self.pools)) - 1
        self._stuck = self._stuck_by_account = 0

    def add_ready_minimum(self, pools: list[int], kept: set[int]) -> int:
        """Add the class of a ready minimum. It moves no job away from a `kept` pool. Return its number."""
        self.pools.append(pools)
        self._movable.append([pool for pool in pools if pool not in kept])
        self.matched.append(0)
        self._next.append(0)
        self._maybe_free |= 1 << len(self.pools) - 1
        return len(self.pools) - 1

    def take_all(self, number: int, wanted: int) -> None:
        """Serve up to `wanted` jobs of a class from free supply, without regard to the limits."""
        wanted -= self.matched[number]
        for pool in self.pools[number]:
            count = min(wanted, self._free[pool])
            if count > 0:
                self._take(number, pool, count)
                self.matched[number] += count
                wanted -= count

    def serve(self, ages: Iterable[Sequence[int]], shared: Sequence[int]) -> None:
        """Serve the jobs of the `shared` classes in the order of `ages`, as far as possible.

        The jobs matched before are the oldest of each class. After a job of a class that cannot be
        served, the class is skipped.
        """
        self._open = sum(1 << number for number in shared)
        self._skip = [0] * len(self.pools)
        for number in shared:
            self._skip[number] = self.matched[number]
        for piece in ages if self._open else ():
            self._serve_some(piece)
            if not self._open:
                break
        self._last_pool = [len(self._free)] * len(self.pools)
        self.matched = [0] * len(self.pools)
        for users in self.users:
            for number, count in users.items():
                self.matched[number] += count

    def _serve_some(self, ages: Sequence[int]) -> None:
        """Serve some jobs in order, until no class is left that has a path."""
        free, last, users, skip = [*self._free, 0], self._last_pool, self.users, self._skip
        self._free, limited = free, self._left is not None
        open_ = [self._open >> number & 1 for number in range(len(self.pools))]
        for number in ages:
            pool = last[number]
            if free[pool]:
                free[pool] -= 1
                users[pool][number] += 1
            elif skip[number]:
                skip[number] -= 1
            elif not open_[number]:
                continue
            elif (direct := self._direct(number)) is not None:
                free[direct] -= 1
                self._move(number, direct, 1)
                if not limited:
                    last[number] = direct
            elif (path := self._detour(number)) is not None:
                self._push(path, 1)
            else:
                open_[number] = 0
                self._open &= ~(self._stuck | 1 << number)
                if not self._open:
                    break
        free.pop()

    def augment(self, number: int, wanted: int = 1) -> int:
        """Serve up to `wanted` more jobs of a class along one path. Return how many, 0 if there is no path.

        Moves jobs of other classes to other pools if necessary.
        """
        pool = self._direct(number)
        path = [(number, pool)] if pool is not None else self._detour(number)
        if path is None:
            return 0
        count = min(wanted, self._free[path[-1][1]]) if self._left is None else 1
        for (_, pool), (other, _) in pairwise(path):
            count = min(count, self.users[pool][other])
        self._push(path, count)
        self.matched[number] += count
        return count

    def _push(self, path: Path, count: int) -> None:
        self.moved = self.moved or len(path) > 1
        for (number, pool), (other, _) in pairwise(path):
            self._move(other, pool, -count)
            self._move(number, pool, count)
        self._take(*path[-1], count)

    def _detour(self, root: int) -> Path | None:
        """Return a path that begins with a class and moves jobs of others, or None."""
        if self._left is not None:
            return self._limited_path(root)
        path = self._detours.get(root)
        if path is None or not self._is_open(path):
            path = self._shortest_path(root)
            if path is not None:
                self._detours[root] = path
        return path

    def _is_open(self, path: Path) -> bool:
        """Return whether each class of a path still has a job to move, and the last pool free supply."""
        return self._free[path[-1][1]] > 0 and all(
            other in self.users[pool] for (_, pool), (other, _) in pairwise(path)
        )

    def _shortest_path(self, root: int) -> Path | None:
        """Return a path of at least two classes with as few as possible, where no limit applies, or None."""
        if self._stuck >> root & 1:
            return None
        for pool in self._movable[root]:
            if (end := self._free_end(self._bits[pool])) is not None:
                return [(root, pool), end]
        bits, visited, used = self._bits, self._stuck | 1 << root, set[int]()
        # Class, pool, and the classes that are reached through this pool first.
        steps = [(root, -1, 1 << root)]
        for _, _, waiting in steps:  # grows meanwhile
            while waiting:
                number = (waiting & -waiting).bit_length() - 1
                waiting &= waiting - 1
                for pool in self._movable[number]:
                    if pool in used:
                        continue
                    used.add(pool)
                    if not (new := bits[pool] & ~visited):
                        continue
                    visited |= new
                    steps.append((number, pool, new))
                    if (end := self._free_end(new)) is not None:
                        return [*_traced(steps, end[0]), end]
        self._stuck |= visited
        return None

    def _free_end(self, classes: int) -> tuple[int, int] | None:
        """Return the first of these classes with free supply and its first pool with any, or None."""
        while ends := classes & self._maybe_free:
            last = (ends & -ends).bit_length() - 1
            if (free := self._direct(last)) is not None:
                return last, free
        return None

    def _limited_path(self, root: int) -> Path | None:
        """Return a path that keeps the limits, or None.

        Searches depth first, because whether a class may use a pool depends on the path to it.
        """
        stuck = self._stuck
        if self._without_registrations(root):
            stuck |= self._stuck_by_account
        if stuck >> root & 1 or not self._maybe_free & ~(stuck | 1 << root):
            return None
        visited, stack = stuck | 1 << root, [_Step(root)]
        while stack:
            step = stack[-1]
            step.waiting &= ~visited
            if not step.waiting and not self._next_pool(step, visited):
                self._backtrack(stack)
                continue
            lowest = step.waiting & -step.waiting
            visited |= lowest
            other = lowest.bit_length() - 1
            self._lend(other, step.pool, 1)
            if (pool := self._direct(other)) is not None:
                path = [(one.number, one.pool) for one in stack] + [(other, pool)]
                for (_, taken), (one, _) in pairwise(path):
                    self._lend(one, taken, -1)
                return path
            stack.append(_Step(other))
        return None

    def _direct(self, number: int) -> int | None:
        """Return the first pool of a class with free supply, if its account may use it, or None."""
        pools, free = self.pools[number], self._free
        for at in range(self._next[number], len(pools)):
            pool = pools[at]
            if free[pool] > 0:
                self._next[number] = at  # a pool that was used up stays so
                # Runners come first: if the limit excludes this pool, it excludes all later ones.
                return pool if self._left is None or self._within(number, pool) else None
        self._next[number] = len(pools)
        self._maybe_free &= ~(1 << number)
        return None

    def _next_pool(self, step: "_Step", visited: int) -> bool:
        """Go to the next pool with classes that could move. Return False if there is none."""
        pools, number, bits, new = self.pools[step.number], step.number, self._bits, ~visited
        for at in range(step.at, len(pools)):
            pool = pools[at]
            if not self._within(number, pool):
                step.at, step.limited = at + 1, True
                return False  # all later pools are machines too
            step.seen |= bits[pool]
            if bits[pool] & new:
                step.at, step.pool, step.waiting = at + 1, pool, bits[pool] & new
                return True
        step.at = len(pools)
        return False

    def _backtrack(self, stack: list["_Step"]) -> None:
        """Leave a class without a path. Mark it as stuck if every class reached from it is stuck."""
        step = stack.pop()
        if not step.limited and not step.seen & ~step.tried & ~self._stuck:
            self._stuck |= step.tried
        if stack:
            before = stack[-1]
            self._lend(step.number, before.pool, -1)
            before.tried |= step.tried
            before.seen |= step.seen
            before.limited = before.limited or step.limited
        elif self._without_registrations(step.number):
            self._stuck_by_account |= step.tried

    def _without_registrations(self, number: int) -> bool:
        """Return whether the class's account may use runners only, which only its own classes share."""
        return self._left is not None and self._left[self._accounts[number]] <= 0

    def _within(self, number: int, pool: int) -> bool:
        """Return whether the limit lets the class's account use the pool."""
        if self._left is None or pool < self._runners:
            return True
        return self._left[self._accounts[number]] > 0

    def _lend(self, number: int, pool: int, count: int) -> None:
        """Count one registration less for the account of a class that gives up a machine (or undo that)."""
        if self._left is not None and pool >= self._runners:
            self._left[self._accounts[number]] += count

    def _take(self, number: int, pool: int, count: int) -> None:
        self._free[pool] -= count
        self._move(number, pool, count)

    def _move(self, number: int, pool: int, count: int) -> None:
        users = self.users[pool]
        now = users[number] = users.get(number, 0) + count
        if now == 0:
            del users[number]
            self._bits[pool] &= ~(1 << number)
        elif now == count:
            self._bits[pool] |= 1 << number
        if self._left is not None and pool >= self._runners:
            self._left[self._accounts[number]] -= count
            if count < 0:
                self._stuck_by_account = 0


def _traced(steps: list[tuple[int, int, int]], last: int) -> Path:
    """Return the classes and pools through which a class was reached, from the root on."""
    path = []
    for number, pool, reached in reversed(steps[1:]):
        if reached >> last & 1:
            path.append((number, pool))
            last = number
    return path[::-1]


class _Step:
    """A class on the path of a depth-first search.

    `pool` is the pool whose classes are tried, `waiting` those not tried yet. `tried` are all classes
    reached from here, `seen` the classes in their pools. `limited`: an account's limit cut the search.
    """

    __slots__ = ("at", "limited", "number", "pool", "seen", "tried", "waiting")

    def __init__(self, number: int) -> None:
        self.number, self.at, self.pool = number, 0, -1
        self.waiting, self.seen, self.tried = 0, 0, 1 << number
        self.limited = False
