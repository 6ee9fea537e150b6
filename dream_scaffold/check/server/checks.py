"""When a project is checked: soon after the last change, one at a time, in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from .projects import Report

DELAY = 0.2
"""Seconds of quiet after which a change is checked."""

T = TypeVar("T")


@dataclass
class Checks:
    """The checks that are due, and the last report of each project."""

    check: Callable[[str], Callable[[], Report]]
    """A root -> the check of the project as it is at this moment, to be run in a thread."""

    publish: Callable[[str, Report], None]
    """Told every report that is not out of date."""

    failed: Callable[[BaseException], None]
    """Told what went wrong where nothing should."""

    reports: dict[str, Report] = field(default_factory=dict)
    _pending: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="dream-check")
    )

    def request(self, root: str, delay: float = DELAY) -> None:
        """Check a project before long; what was due or is running for it is out of date."""
        self.forget(root)
        self._pending[root] = asyncio.ensure_future(self._run(root, delay))

    def forget(self, root: str) -> None:
        """Drop what is due, running or known of a project."""
        self.reports.pop(root, None)
        task = self._pending.pop(root, None)
        if task is not None:
            task.cancel()

    async def current(self, root: str) -> Report | None:
        """The report on a project as it is now; None where there is none to be had."""
        while root not in self.reports and root in self._pending:
            await asyncio.wait([self._pending[root]])
        return self.reports.get(root)

    async def aside(self, work: Callable[[], T]) -> T:
        """Do work in the thread of the checks, which share a working folder."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Start nothing more."""
        for root in list(self._pending):
            self.forget(root)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, root: str, delay: float) -> None:
        try:
            await asyncio.sleep(delay)
            report = await self.aside(self.check(root))
            self.reports[root] = report
            self.publish(root, report)
        except Exception as error:
            self.failed(error)
        finally:
            if self._pending.get(root) is asyncio.current_task():
                del self._pending[root]
