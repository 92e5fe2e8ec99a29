#!/bin/sh
# A client of pi-session-server for POSIX shell and jq. Copy what is above "the demonstration"; `sh client.sh` runs it.
set -u

# Says why it ends, and ends. Functions that may call it must not run in a subshell, such as $(call ...).
stop() {
  echo "$1" >&2
  exit 1
}

# Starts the server with these options. It reads what is written to 3, and writes to 4; its complaints go to our stderr.
start() {
  program=${PI_SESSION_SERVER:-pi-session-server}
  command -v "$program" >/dev/null || stop "The server cannot be started: there is no program $program."
  mkfifo "$folder/requests" "$folder/replies" || exit 1
  "$program" --framing lines --dialect jsonrpc "$@" <"$folder/requests" >"$folder/replies" &
  server=$!
  exec 3>"$folder/requests" 4<"$folder/replies"
  trap '' PIPE # Writing to a server that has ended fails, and does not end this script.
  last_id=0
}

# Reads a message: $message is all of it, $kind and $name tell what it is. Fails at the end of the output.
receive() {
  IFS= read -r message <&4 || return 1
  kind=$(printf '%s\n' "$message" | jq -r '
    if has("method") then (if has("id") then "hook " else "event " end) + .method
    elif has("error") then "failure " + .error.data.name
    else "result " end') || stop "The server does not speak JSON-RPC."
  name=${kind#* } kind=${kind%% *}
}

# Sends a request, its method and its params, and waits for the reply, which is then in $message. Fails with a failure.
# What comes before the reply goes to on_event and on_hook, which you write; on_hook sets $answer.
# The params go through a pipe, because an argument of a program cannot be longer than 128 KiB.
call() {
  last_id=$((last_id + 1))
  printf '%s\n' "$2" | jq -c --argjson id "$last_id" --arg method "$1" '{jsonrpc: "2.0", $id, $method, params: .}' >&3
  while receive; do
    case $kind in
      result) return 0 ;;
      failure) return 1 ;;
      event) on_event "$name" ;;
      hook)
        on_hook "$name"
        printf '%s\n' "$message" | jq -c --argjson answer "$answer" '{jsonrpc: "2.0", id, result: $answer}' >&3
        ;;
    esac
  done
  stop "The server ended before it answered $1."
}

# The same, for a request that is expected to succeed.
must() { call "$@" || stop "$1 failed: $(reply .error.message)"; }

# Prints what a jq program makes of the last reply.
reply() { printf '%s\n' "$message" | jq -r "$@"; }

# Lets the server finish all that was sent and waits for its end. The exit status is in $status.
finish() {
  call shutdown '{}'
  exec 3>&-
  while receive; do on_event "$name"; done
  wait "$server"
  status=$?
}

# --- the demonstration: prints the lines that README.md shows ---

events=
on_event() { events="$events $1"; }

# Answers a question of the server: null allows the action, {"cancel": true} stops it.
on_hook() {
  echo "hook: $1"
  answer=null
}

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
start --session-dir "$folder"

must initialize '{"capabilities": {"hooks": [{"name": "session_before_fork"}]}}'
reply '"server: \(.result.serverInfo.name), protocol \(.result.protocolVersion)"'

turn='{"idempotencyKey": "turn-1", "entries": [
  {"type": "message", "message": {"role": "user", "content": "Grüße, 世界 🌍! Name a colour."}},
  {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "Blue."}]}}]}'
must append "$turn"
entries=$(reply -c .result.entryIds)
reply '"append: \(.result.entryIds | length) entries"'
must append "$turn"
same='if .result.entryIds == $first then "the same" else "other" end'
reply --argjson first "$entries" '"append with the same key: \('"$same"') entries"'
must get_messages '{}'
# The content of a message is a string or a list of blocks.
text='.content | if type == "string" then . else map(.text // "") | join("") end'
reply '.result.messages[] | "\(.role): \('"$text"')"'

must fork "$(printf '%s' "$entries" | jq '{entryId: .[0]}')"
reply '"fork before: \(.result.text)"'
must append "$(jq -n '{idempotencyKey: "turn-2", entries: [
  {type: "message", message: {role: "user", content: ("é" * 700000)}}]}')"
must get_messages '{}'
reply '"long message: \(.result.messages[0] | '"$text"' | length) characters"'
call get_entry '{"entryId": "ffffffff"}' || reply '"failure: \(.error.data.name) (\(.error.code))"'

finish
echo "events:$events"
echo "exit status: $status"
exit "$status"
