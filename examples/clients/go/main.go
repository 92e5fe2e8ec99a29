// A client of pi-session-server; copy what is above "the demonstration". `go run main.go` runs that.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

type object = map[string]any

// Failure is an error that the server declares. Programs look at Data.Name; Message is for people.
type Failure struct {
	Code    int
	Message string
	Data    struct{ Name string }
}

func (failure *Failure) Error() string { return failure.Message }

// ErrEnded means that the server is gone. A request without a reply may or may not have been done.
var ErrEnded = errors.New("the server ended before it answered")

// Client is a server in a process of its own. Its methods can be called from any goroutine.
type Client struct {
	OnEvent func(name string, params json.RawMessage)     // is called in order, and must not call the server
	OnHook  func(name string, params json.RawMessage) any // nil allows the action, {"cancel": true} stops it

	process *exec.Cmd
	stdin   io.WriteCloser
	writing sync.Mutex
	lastID  int64
	waiting sync.Map // from the id of a request to the channel of its reply
	ended   chan struct{}
}

// frame is any message of the server.
type frame struct {
	ID             *int64
	Method         string
	Params, Result json.RawMessage
	Error          *Failure
}

// Start starts the server. Its complaints go to our stderr.
func (client *Client) Start(program string, args ...string) error {
	client.process = exec.Command(program, append([]string{"--framing", "lines", "--dialect", "jsonrpc"}, args...)...)
	client.process.Stderr = os.Stderr
	client.stdin, _ = client.process.StdinPipe()
	stdout, _ := client.process.StdoutPipe()
	client.ended = make(chan struct{})
	if err := client.process.Start(); err != nil {
		return fmt.Errorf("the server cannot be started: %w", err)
	}
	go client.read(stdout)
	return nil
}

// Call sends a request and decodes its result. It fails with a *Failure, ErrEnded or the error of the context.
func (client *Client) Call(ctx context.Context, method string, params object, result any) error {
	if params == nil {
		params = object{} // The server refuses null.
	}
	id, replies := atomic.AddInt64(&client.lastID, 1), make(chan frame, 1)
	client.waiting.Store(id, replies)
	client.send(object{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	var reply frame
	select {
	case reply = <-replies:
	case <-ctx.Done():
		client.send(object{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": object{"id": id}})
		return ctx.Err()
	case <-client.ended:
		select {
		case reply = <-replies: // It came just before the end.
		default:
			return ErrEnded
		}
	}
	if reply.Error != nil {
		return reply.Error
	}
	return json.Unmarshal(reply.Result, result)
}

// Close lets the server finish all that was sent and waits for its end. It returns the exit status.
func (client *Client) Close(ctx context.Context) int {
	client.Call(ctx, "shutdown", nil, &object{})
	client.stdin.Close()
	select {
	case <-client.ended:
	case <-ctx.Done():
		client.process.Process.Kill()
		<-client.ended
	}
	return client.process.ProcessState.ExitCode()
}

// send writes a message. That fails when the server has ended, which read notices.
func (client *Client) send(message object) {
	client.writing.Lock()
	defer client.writing.Unlock()
	encoder := json.NewEncoder(client.stdin)
	encoder.SetEscapeHTML(false) // Entries are stored as they are sent.
	encoder.Encode(message)
}

// read hands on what the server says. A Decoder reads lines of any length; a Scanner gives up at 64 KiB.
func (client *Client) read(stdout io.Reader) {
	for decoder := json.NewDecoder(stdout); ; {
		var message frame
		if err := decoder.Decode(&message); err == io.EOF {
			break
		} else if err != nil { // The server died in the middle of a message, or is another program.
			client.process.Process.Kill()
			break
		}
		if message.Method == "" && message.ID != nil {
			if replies, found := client.waiting.LoadAndDelete(*message.ID); found {
				replies.(chan frame) <- message
			}
		} else if message.ID == nil {
			client.OnEvent(message.Method, message.Params)
		} else {
			go func() {
				answer := client.OnHook(message.Method, message.Params)
				client.send(object{"jsonrpc": "2.0", "id": message.ID, "result": answer})
			}()
		}
	}
	client.process.Wait()
	close(client.ended)
}

// --- the demonstration: prints the lines that README.md shows ---

type message struct {
	Role    string
	Content any
}

// text returns the text of a message, whose content is a string or a list of blocks.
func (message message) text() string {
	text, _ := message.Content.(string)
	blocks, _ := message.Content.([]any)
	for _, block := range blocks {
		part, _ := block.(object)["text"].(string)
		text += part
	}
	return text
}

func entry(role string, content any) object {
	return object{"type": "message", "message": object{"role": role, "content": content}}
}

func main() {
	folder, err := os.MkdirTemp("", "pi-session-server-")
	check := func(err error) {
		if err != nil {
			os.RemoveAll(folder)
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	program := os.Getenv("PI_SESSION_SERVER")
	if program == "" {
		program = "pi-session-server"
	}
	events := []string{}
	client := Client{
		OnEvent: func(name string, _ json.RawMessage) { events = append(events, name) },
		OnHook:  func(name string, _ json.RawMessage) any { fmt.Println("hook:", name); return nil },
	}
	check(client.Start(program, "--session-dir", folder))

	var info struct {
		ServerInfo      struct{ Name string }
		ProtocolVersion int
	}
	capabilities := object{"hooks": []object{{"name": "session_before_fork"}}}
	check(client.Call(ctx, "initialize", object{"capabilities": capabilities}, &info))
	fmt.Printf("server: %s, protocol %d\n", info.ServerInfo.Name, info.ProtocolVersion)

	answer := []object{{"type": "text", "text": "Blue."}}
	entries := []object{entry("user", "Grüße, 世界 🌍! Name a colour."), entry("assistant", answer)}
	var appended, again struct{ EntryIDs []string }
	check(client.Call(ctx, "append", object{"entries": entries, "idempotencyKey": "turn-1"}, &appended))
	fmt.Printf("append: %d entries\n", len(appended.EntryIDs))
	check(client.Call(ctx, "append", object{"entries": entries, "idempotencyKey": "turn-1"}, &again))
	which := map[bool]string{true: "the same", false: "other"}[reflect.DeepEqual(again, appended)]
	fmt.Printf("append with the same key: %s entries\n", which)
	var seen struct{ Messages []message }
	check(client.Call(ctx, "get_messages", nil, &seen))
	for _, message := range seen.Messages {
		fmt.Printf("%s: %s\n", message.Role, message.text())
	}

	var fork struct{ Text string }
	check(client.Call(ctx, "fork", object{"entryId": appended.EntryIDs[0]}, &fork))
	fmt.Printf("fork before: %s\n", fork.Text)
	entries = []object{entry("user", strings.Repeat("é", 700_000))}
	check(client.Call(ctx, "append", object{"entries": entries, "idempotencyKey": "turn-2"}, &appended))
	check(client.Call(ctx, "get_messages", nil, &seen))
	fmt.Printf("long message: %d characters\n", utf8.RuneCountInString(seen.Messages[0].text()))
	var failure *Failure
	if err := client.Call(ctx, "get_entry", object{"entryId": "ffffffff"}, &object{}); !errors.As(err, &failure) {
		check(err)
	}
	fmt.Printf("failure: %s (%d)\n", failure.Data.Name, failure.Code)

	status := client.Close(ctx)
	fmt.Printf("events: %s\nexit status: %d\n", strings.Join(events, " "), status)
	check(os.RemoveAll(folder))
	os.Exit(status)
}
