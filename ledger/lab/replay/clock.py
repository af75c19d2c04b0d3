"""A host that launches kernels and a device that runs them: how far the one is ahead of the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

# Kernels that a host has launched and a device has not run, at most; a further launch waits. Observed by
# https://forums.developer.nvidia.com/t/68937 ("the buffer size is about 1000 kernels"); a queue has 2**10 places.
QUEUE = 1024


@dataclass(slots=True)
class Clock:
    """Seconds of the host, and when the device will have run all that was launched so far."""

    host: float = 0.0
    device: float = 0.0
    pending: deque[float] = field(default_factory=deque)  # when the device will have run each of the last kernels

    def launch(self, host: float, device: float, kernels: int = 1) -> None:
        """So many more kernels, each of which takes the host and the device so many seconds."""
        now, done, pending = self.host, self.device, self.pending
        for _ in range(kernels):
            now += host
            if len(pending) == QUEUE and (ran := pending.popleft()) > now:
                now = ran
            done = now + device if now > done else done + device
            pending.append(done)
        self.host, self.device = now, done

    def wait(self) -> None:
        """The host waits until the device has run all that was launched."""
        self.host = max(self.host, self.device)
