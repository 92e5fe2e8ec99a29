"""A client of pi-session-server, which keeps the conversations of coding agents.

    with SessionServer(["--session-dir", "sessions"]) as server:
        server.call("append", entries=[user("Name a colour."), assistant("Blue.")])
        for message in server.call("get_messages")["messages"]:
            print(message["role"], text_of(message))

Copy this file: it needs Python 3.9 and nothing else. `python3 pi_sessions.py` runs a demonstration.

The program is `program`, or what the variable PI_SESSION_SERVER names, or `pi-session-server` on the path. Its
complaints go to this process's stderr. Every method can be called from any thread.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import traceback
from concurrent.futures import Future, TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, TypedDict, Union


class Message(TypedDict, total=False):
    """A message as the model sees it. Other roles than user and assistant have more members (protocol.md)."""

    role: str
    content: Union[str, list[dict[str, Any]]]
    summary: str


class Entry(TypedDict, total=False):
    """A stored record of a session. The server adds the id, the parent and the time where they are missing."""

    type: str
    id: str
    parentId: Optional[str]
    timestamp: str
    message: Message


class Appended(TypedDict):
    """The result of `append`."""

    entryIds: list[str]
    leafId: Optional[str]


class Forked(TypedDict):
    """The result of `fork`."""

    text: str
    cancelled: bool
    sessionId: str
    sessionFile: Optional[str]


@dataclass(frozen=True)
class Event:
    """A notification: something happened to a session."""

    name: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Hook:
    """A question of the server. Reads inside of a handler need `_meta={"hook": hook.id}`: all else waits for it."""

    name: str
    params: dict[str, Any]
    id: Any


HookHandler = Callable[[Hook], Optional[Mapping[str, Any]]]


class Failure(Exception):
    """An error that the server declares. Programs look at `name`; the text is for people."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: dict[str, Any] = error.get("data") or {}
        self.name: str = self.data.get("name", "")
        self.retryable: bool = self.data.get("retryable", False)


class ServerEnded(Exception):
    """The server is gone. A request without a reply may or may not have been done; repeat it with its key."""

    def __init__(self, status: Optional[int]) -> None:
        super().__init__(f"The server ended unexpectedly, with status {status}.")
        self.status = status


class SessionServer:
    """A server in a process of its own. `hooks` are answered by their handlers: None allows, {"cancel": True} refuses.

    Events and hooks are handled one after the other in a thread of their own, which may call the server. `initialize` has
    further params of that request, such as {"leaf": "own", "maxReplyBytes": 65536, "capabilities": {"events": []}}.
    """

    def __init__(
        self,
        args: Sequence[str] = (),
        *,
        program: Optional[str] = None,
        on_event: Callable[[Event], None] = lambda event: None,
        hooks: Optional[Mapping[str, HookHandler]] = None,
        timeout: float = 60,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        initialize: Optional[Mapping[str, Any]] = None,
    ) -> None:
        program = program or os.environ.get("PI_SESSION_SERVER") or "pi-session-server"
        self.timeout = timeout
        self._on_event = on_event
        self._hooks = dict(hooks or {})
        self._waiting: dict[int, Future[Any]] = {}
        self._last_id = 0
        self._ended = False
        # Of its own, because a write may block until the reader has read, and the reader takes the other one.
        self._write_lock = threading.Lock()
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Optional[dict[str, Any]]] = queue.SimpleQueue()
        command = [program, "--framing", "lines", "--dialect", "jsonrpc", *args]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=cwd)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._handler = threading.Thread(target=self._handle, daemon=True)
        self._reader.start()
        self._handler.start()
        try:
            wanted = {"clientInfo": {"name": os.path.basename(sys.argv[0]) or "python"}, **(initialize or {})}
            hooks = [{"name": name} for name in self._hooks]
            wanted["capabilities"] = {"hooks": hooks, **wanted.get("capabilities", {})}
            self.info = self.call("initialize", {"protocolVersion": 1, **wanted})
        except BaseException:
            self.kill()
            raise

    def call(
        self,
        method: str,
        members: Optional[Mapping[str, Any]] = None,
        /,
        *,
        timeout: Optional[float] = None,
        **params: Any,
    ) -> Any:
        """Sends a request and returns its result; raises Failure, ServerEnded or TimeoutError.

        `members` has params whose names Python takes itself: call("merge_branch", {"from": entry_id}).
        """
        params = {**(members or {}), **params}
        future: Future[Any] = Future()
        with self._lock:
            if self._ended:
                raise ServerEnded(self._process.returncode)
            self._last_id += 1
            id = self._last_id
            self._waiting[id] = future
        seconds = self.timeout if timeout is None else timeout
        try:
            self._send({"id": id, "method": method, "params": params})
            return future.result(seconds)
        except FutureTimeout:
            self._send({"method": "$/cancelRequest", "params": {"id": id}})
            raise TimeoutError(f"The server has not answered {method} within {seconds} s.") from None
        finally:
            with self._lock:
                self._waiting.pop(id, None)

    def close(self, timeout: float = 30) -> int:
        """Lets the server finish all that was sent and waits for its end; returns its exit status."""
        with suppress(Failure, ServerEnded, TimeoutError):
            self.call("shutdown", timeout=timeout)
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"The server has not ended within {timeout} s.") from None
        for thread in (self._reader, self._handler):
            if thread is not threading.current_thread():
                thread.join()
        return status

    def kill(self) -> None:
        """Ends the server at once. What it acknowledged is on disk."""
        self._process.kill()
        self.close()

    def __enter__(self) -> SessionServer:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        status = self.close()
        if status != 0 and error is None:
            raise ServerEnded(status)

    def _send(self, message: dict[str, Any]) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, allow_nan=False)
        # Half of a surrogate pair, as JSON from elsewhere may have it, is no character of UTF-8: it stays an escape.
        line = text.encode(errors="backslashreplace") + b"\n"
        # Writing to a server that has ended fails. The reader notices its end and tells those who wait.
        with self._write_lock, suppress(OSError, ValueError):
            self._process.stdin.write(line)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _read(self) -> None:
        try:
            # As bytes: a line of text would also end at other characters than the line feed.
            with self._process.stdout as lines:  # type: ignore[union-attr]
                for line in lines:
                    message = json.loads(line)
                    if "method" in message:
                        self._inbox.put(message)
                    else:
                        self._settle(message)
        except (ValueError, TypeError, LookupError, RecursionError):
            # This is no message that can be read: the server died in the middle of one, or it is another program.
            self._process.kill()
        status = self._process.wait()
        with self._lock:
            self._ended = True
            waiting = list(self._waiting.values())
        for future in waiting:
            if not future.done():
                future.set_exception(ServerEnded(status))
        self._inbox.put(None)

    def _settle(self, reply: dict[str, Any]) -> None:
        with self._lock:
            future = self._waiting.get(reply["id"])
        if future is None:
            return  # Nobody waits for it any longer.
        if "error" in reply:
            future.set_exception(Failure(reply["error"]))
        else:
            future.set_result(reply["result"])

    def _handle(self) -> None:
        for message in iter(self._inbox.get, None):
            name, params, id = message["method"], message.get("params", {}), message.get("id")
            try:
                if id is None:
                    self._on_event(Event(name, params))
                else:
                    self._send({"id": id, "result": self._hooks[name](Hook(name, params, id))})
            except Exception as error:
                traceback.print_exc()
                if id is not None:  # The server waits for an answer; this one stops the action.
                    self._send({"id": id, "error": {"code": -32603, "message": str(error)}})


def user(text: str) -> Entry:
    """Makes an entry of what a person said."""
    return {"type": "message", "message": {"role": "user", "content": text}}


def assistant(text: str) -> Entry:
    """Makes an entry of what a model said; a real host also stores provider, model, usage and stopReason."""
    return {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}


def text_of(message: Message) -> str:
    """Returns the text of a message: its content, a string or a list of blocks, or the summary of a compaction or branch."""
    content = message.get("content", message.get("summary", ""))
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def demonstrate(folder: str) -> None:
    """Prints the lines that README.md shows."""
    events: list[str] = []
    server = SessionServer(
        ["--session-dir", folder],
        on_event=lambda event: events.append(event.name),
        hooks={"session_before_fork": lambda hook: print(f"hook: {hook.name}")},
    )
    with server:
        print(f"server: {server.info['serverInfo']['name']}, protocol {server.info['protocolVersion']}")

        entries = [user("Grüße, 世界 🌍! Name a colour."), assistant("Blue.")]
        appended: Appended = server.call("append", entries=entries, idempotencyKey="turn-1")
        print(f"append: {len(appended['entryIds'])} entries")
        again: Appended = server.call("append", entries=entries, idempotencyKey="turn-1")
        print(f"append with the same key: {'the same' if again == appended else 'other'} entries")
        for message in server.call("get_messages")["messages"]:
            print(f"{message['role']}: {text_of(message)}")

        forked: Forked = server.call("fork", entryId=appended["entryIds"][0])
        print(f"fork before: {forked['text']}")
        server.call("append", entries=[user("é" * 700_000)], idempotencyKey="turn-2")
        (long,) = server.call("get_messages")["messages"]
        print(f"long message: {len(text_of(long))} characters")
        try:
            server.call("get_entry", entryId="ffffffff")
        except Failure as failure:
            print(f"failure: {failure.name} ({failure.code})")
    print(f"events: {' '.join(events)}")
    print(f"exit status: {server.close()}")


if __name__ == "__main__":
    try:
        with tempfile.TemporaryDirectory() as folder:
            demonstrate(folder)
    except OSError as error:
        sys.exit(f"The server cannot be started: {error}")
    except ServerEnded as error:
        sys.exit(str(error))
