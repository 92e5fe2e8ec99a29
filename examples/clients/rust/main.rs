//! A client of pi-session-server; copy what is above "the demonstration". `cargo run` runs that.
//!
//! It needs the crate serde_json (`cargo add serde_json`) and uses one thread: a call waits for its reply.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

#[derive(Debug)]
pub enum Error {
    /// An error that the server declares. Programs look at the name; the message is for people.
    Failure { code: i64, name: String, message: String },
    /// The server is gone. A request without a reply may or may not have been done.
    Ended(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Error::Failure { message, .. } | Error::Ended(message) => formatter.write_str(message),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Ended(format!("The server is gone: {}.", error))
    }
}

/// A server in a process of its own.
pub struct Client<'a> {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
    /// Is called for each event, while a call waits.
    on_event: Box<dyn FnMut(&str, &Value) + 'a>,
    /// Answers a question of the server: null allows the action, {"cancel": true} stops it.
    on_hook: Box<dyn FnMut(&str, &Value) -> Value + 'a>,
}

impl<'a> Client<'a> {
    /// Starts the server. Its complaints go to our stderr.
    pub fn start(
        program: &str,
        args: &[&str],
        on_event: impl FnMut(&str, &Value) + 'a,
        on_hook: impl FnMut(&str, &Value) -> Value + 'a,
    ) -> Result<Client<'a>, Error> {
        let mut process = Command::new(program)
            .args(["--framing", "lines", "--dialect", "jsonrpc"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Error::Ended(format!("{} cannot be started: {}.", program, error)))?;
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        Ok(Client { process, stdin, stdout, last_id: 0, on_event: Box::new(on_event), on_hook: Box::new(on_hook) })
    }

    /// Sends a request and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        while let Some(mut message) = self.receive()? {
            if message["id"] != id {
                continue;
            }
            let error = &message["error"];
            if error.is_null() {
                return Ok(message["result"].take());
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            return Err(Error::Failure {
                code: error["code"].as_i64().unwrap_or_default(),
                name: text(&error["data"]["name"]),
                message: text(&error["message"]),
            });
        }
        Err(Error::Ended(format!("The server ended before it answered {}.", method)))
    }

    /// Lets the server finish all that was sent and waits for its end.
    pub fn close(mut self) -> Result<ExitStatus, Error> {
        self.call("shutdown", json!({}))?;
        self.stdin = None;
        while self.receive()?.is_some() {}
        Ok(self.process.wait()?)
    }

    fn send(&mut self, message: Value) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().expect("it is open until close");
        stdin.write_all(format!("{}\n", message).as_bytes())
    }

    /// Returns the next reply, or nothing at the end. Events are handed on and hooks are answered before it.
    fn receive(&mut self) -> Result<Option<Value>, Error> {
        loop {
            let mut line = Vec::new();
            if self.stdout.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            // If this is no JSON, the server died in the middle of a message, or it is another program.
            let message: Value = serde_json::from_slice(&line).map_err(std::io::Error::from)?;
            match (message["method"].as_str(), message.get("id")) {
                (Some(name), Some(id)) => {
                    let answer = (self.on_hook)(name, &message["params"]);
                    self.send(json!({"jsonrpc": "2.0", "id": id, "result": answer}))?;
                }
                (Some(name), None) => (self.on_event)(name, &message["params"]),
                (None, _) => return Ok(Some(message)),
            }
        }
    }
}

// --- the demonstration: prints the lines that README.md shows ---

/// Returns the text of a message, whose content is a string or a list of blocks.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_string(),
    }
}

fn entry(role: &str, content: Value) -> Value {
    json!({"type": "message", "message": {"role": role, "content": content}})
}

fn demonstrate(folder: &str) -> Result<i32, Error> {
    let program = std::env::var("PI_SESSION_SERVER").unwrap_or_else(|_| "pi-session-server".to_string());
    let events = std::cell::RefCell::new(Vec::new());
    let mut client = Client::start(
        &program,
        &["--session-dir", folder],
        |name, _| events.borrow_mut().push(name.to_string()),
        |name, _| {
            println!("hook: {}", name);
            Value::Null
        },
    )?;
    let capabilities = json!({"hooks": [{"name": "session_before_fork"}]});
    let info = client.call("initialize", json!({ "capabilities": capabilities }))?;
    let name = info["serverInfo"]["name"].as_str().unwrap_or_default();
    println!("server: {}, protocol {}", name, info["protocolVersion"]);

    let answer = json!([{"type": "text", "text": "Blue."}]);
    let entries = json!([entry("user", json!("Grüße, 世界 🌍! Name a colour.")), entry("assistant", answer)]);
    let turn = json!({"entries": entries, "idempotencyKey": "turn-1"});
    let appended = client.call("append", turn.clone())?;
    println!("append: {} entries", appended["entryIds"].as_array().map_or(0, Vec::len));
    let again = client.call("append", turn)?;
    println!("append with the same key: {} entries", if again == appended { "the same" } else { "other" });
    let seen = client.call("get_messages", json!({}))?;
    for message in seen["messages"].as_array().into_iter().flatten() {
        println!("{}: {}", message["role"].as_str().unwrap_or_default(), text_of(message));
    }

    let fork = client.call("fork", json!({"entryId": appended["entryIds"][0]}))?;
    println!("fork before: {}", fork["text"].as_str().unwrap_or_default());
    let entries = json!([entry("user", json!("é".repeat(700_000)))]);
    client.call("append", json!({"entries": entries, "idempotencyKey": "turn-2"}))?;
    let seen = client.call("get_messages", json!({}))?;
    println!("long message: {} characters", text_of(&seen["messages"][0]).chars().count());
    match client.call("get_entry", json!({"entryId": "ffffffff"})) {
        Err(Error::Failure { code, name, .. }) => println!("failure: {} ({})", name, code),
        other => drop(other?),
    }

    let status = client.close()?.code().unwrap_or(-1);
    println!("events: {}", events.borrow().join(" "));
    println!("exit status: {}", status);
    Ok(status)
}

fn main() {
    let folder = std::env::temp_dir().join(format!("pi-session-server-{}", std::process::id()));
    let outcome = demonstrate(&folder.to_string_lossy());
    let _ = std::fs::remove_dir_all(&folder);
    std::process::exit(outcome.unwrap_or_else(|error| {
        eprintln!("{}", error);
        1
    }));
}
