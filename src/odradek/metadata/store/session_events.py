"""The state of a session, with the listeners and coroutines that wait for its changes."""

from __future__ import annotations

import asyncio

from odradek.metadata.store.interface import SessionListener, SessionLostError, SessionState


class SessionEvents:
    """The state of one store's session. Owned by the event loop. The store changes it."""

    __slots__ = ("_listeners", "_waiting", "state")

    def __init__(self) -> None:
        self.state = SessionState.CLOSED
        self._listeners: list[SessionListener] = []
        self._waiting: list[asyncio.Future[None]] = []

    def subscribe(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def change(self, state: SessionState) -> None:
        """Set the state and call the listeners. CLOSED is not reported to them."""
        self.state = state
        if state is not SessionState.CLOSED:
            for listener in self._listeners:
                listener(state)
        if state is not SessionState.SUSPENDED:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    async def connected(self) -> None:
        """Return when the state is CONNECTED. Raise SessionLostError if there is no session."""
        while self.state is SessionState.SUSPENDED:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        if self.state is not SessionState.CONNECTED:
            raise SessionLostError(f"the session is {self.state.value}")
