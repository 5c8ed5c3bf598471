"""A maximum flow of jobs from numbered classes to numbered pools, by augmenting paths.

The pools of a class are in order of use, pools of runners first. A set of classes is an integer with a bit
for each class, so that operations on hundreds of classes are as fast as on a few.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise


class Flow:
    """How many jobs of each class each pool serves.

    `pools` has the pools of each class. `users` counts jobs by pool and class, `matched` by class. The first
    `runners` pools are registered runners. The other pools are machines that have yet to register;
    `machines` counts by account how many of them serve it. `moved`: jobs moved from pool to pool.
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
        # Classes without any path.
        self._stuck = 0
        # Classes without any path as long as their account can register no more machines.
        self._stuck_by_account = 0
        # Superset of the classes with free supply in one of their pools.
        self._maybe_free = (1 << len(pools)) - 1
        self._kept: set[int] = set()
        self._next = [0] * len(pools)
        # The pool that each class used last. While it has free supply, no search is needed.
        self._last_pool = [len(free)] * len(pools)
        self._last_users: list[dict[int, int]] = [{} for _ in pools]
        self._skip = [0] * len(pools)
        self._first_minimum = len(pools)

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
        self.matched.append(0)
        self._next.append(0)
        self._maybe_free |= 1 << len(self.pools) - 1
        self._kept = kept
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
        open_ = [False] * len(self.pools)
        for number in shared:
            open_[number] = True
        self._skip = [n if wanted else 0 for n, wanted in zip(self.matched, open_, strict=True)]
        left = len(shared)
        for piece in ages if left else ():
            left -= self._serve_some(piece, open_, left)
            if not left:
                break
        self._last_pool = [len(self._free)] * len(self.pools)
        self._count()

    def _serve_some(self, ages: Sequence[int], open_: list[bool], left: int) -> int:
        """Serve some jobs in order. Return how many classes turned out to have no path."""
        free, at, mine, skip = [*self._free, 0], self._last_pool, self._last_users, self._skip
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
        """Recompute `matched` and `machines` from `users`."""
        self.matched = [0] * len(self.pools)
        self.machines = [0] * len(self.machines)
        for pool, users in enumerate(self.users):
            for number, count in users.items():
                self.matched[number] += count
                if pool >= self._runners and number < self._first_minimum:
                    self.machines[self._accounts[number]] += count

    def augment(self, number: int, wanted: int = 1) -> int:
        """Serve up to `wanted` more jobs of a class along one path. Return how many, 0 if there is no path.

        Moves jobs of other classes to other pools if necessary.
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
            for (number, pool), (other, _) in pairwise(path):
                self._move(other, pool, -count)
                self._move(number, pool, count)
        self._take(*path[-1], count)

    def _path(self, root: int) -> list[tuple[int, int]] | None:
        """Return a path as pairs of class and pool, or None.

        Each class takes a place in its pool from the next class of the path; the last takes a free one.
        """
        stuck = (
            self._stuck | self._stuck_by_account
            if self._without_registrations(root)
            else self._stuck
        )
        if stuck >> root & 1:
            return None
        if (pool := self._direct(root)) is not None:
            return [(root, pool)]
        if not self._maybe_free & ~(stuck | 1 << root):
            return None
        return self._shortest_path(root) if self._left is None else self._limited_path(root, stuck)

    def _shortest_path(self, root: int) -> list[tuple[int, int]] | None:
        """Return a path of at least two classes with as few as possible, where no limit applies, or None."""
        bits, visited, used = self._bits, self._stuck | 1 << root, set[int]()
        # Class, pool, and the classes that are reached through this pool first.
        steps = [(root, -1, 1 << root)]
        for _, _, waiting in steps:  # grows meanwhile
            while waiting:
                number = (waiting & -waiting).bit_length() - 1
                waiting &= waiting - 1
                for pool in self.pools[number]:
                    if pool in used or (number >= self._first_minimum and pool in self._kept):
                        continue  # a ready minimum takes no ready machine from a job
                    used.add(pool)
                    if not (new := bits[pool] & ~visited):
                        continue
                    visited |= new
                    steps.append((number, pool, new))
                    while ends := new & self._maybe_free:
                        last = (ends & -ends).bit_length() - 1
                        if (free := self._direct(last)) is not None:
                            return [*_traced(steps, last), (last, free)]
        self._stuck |= visited
        return None

    def _limited_path(self, root: int, stuck: int) -> list[tuple[int, int]] | None:
        """Return a path that keeps the limits, or None.

        Searches depth first, because whether a class may use a pool depends on the path to it.
        """
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
        now = users.get(number, 0) + count
        if now:
            users[number] = now
            self._bits[pool] |= 1 << number
        else:
            del users[number]
            self._bits[pool] &= ~(1 << number)
        if pool >= self._runners and number < self._first_minimum:
            self.machines[self._accounts[number]] += count
            if self._left is not None:
                self._left[self._accounts[number]] -= count
                if count < 0:
                    self._stuck_by_account = 0


def _traced(steps: list[tuple[int, int, int]], last: int) -> list[tuple[int, int]]:
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
