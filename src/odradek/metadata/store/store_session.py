"""The session of a store: state and id, with the listeners and coroutines that wait for changes."""

from __future__ import annotations

import asyncio

from odradek.metadata.store.interface import (
    NO_SESSION,
    SessionListener,
    SessionLostError,
    SessionState,
)


class StoreSession:
    """The base class of all stores. It has the part of `MetadataStore` that concerns the session.

    The event loop owns the state. A subclass sets `_session_id` when the session begins. It
    changes the state with `_change_session` and `_end_session`.
    """

    def __init__(self) -> None:
        self._state = SessionState.CLOSED
        self._session_id = NO_SESSION
        self._listeners: list[SessionListener] = []
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session_id

    def subscribe(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def connected(self) -> None:
        while self._state is SessionState.SUSPENDED:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        if self._state is not SessionState.CONNECTED:
            raise SessionLostError(f"the session is {self._state.value}")

    async def create_root(self) -> None:
        """Do nothing: the root exists."""

    # --- for subclasses ---

    def _change_session(self, state: SessionState) -> None:
        """Set the state and call the listeners. CLOSED is not reported to them."""
        self._state = state
        if state is not SessionState.CLOSED:
            for listener in self._listeners:
                listener(state)
        if state is not SessionState.SUSPENDED:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    def _end_session(self) -> None:
        """Set the state CLOSED. There is no session id."""
        self._session_id = NO_SESSION
        self._change_session(SessionState.CLOSED)
